"""A folder for `PYTHONPATH` with a `sitecustomize`, which Python runs before all other code."""
