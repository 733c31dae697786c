"""One module per API, discovered by listing this folder; handlers do not import each other.

A module has one function under `@handles`. Only the scan in `broker/call.py` imports it.
"""
