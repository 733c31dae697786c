"""The declaration of a pipeline: its classes, loading it from TOML, its checks and its export.

`load` reads a file to a `Pipeline` and checks all of it; the other parts of the package see no
files.
"""
