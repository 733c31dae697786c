"""A folder for `PYTHONPATH` with a `sitecustomize`, which Python runs before all other code.

Only Python itself imports it, when `early-connect` has put this folder on the path.
"""
