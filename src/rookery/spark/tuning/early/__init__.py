"""A folder for `PYTHONPATH`: what Python runs there before anything else (see `sitecustomize`)."""
