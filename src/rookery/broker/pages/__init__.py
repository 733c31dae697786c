"""Pages of documentation that are generated from the routes.

Each module has `page`, which returns the text; `scripts/docs` writes the files.
"""
