"""Backends of the object store; a module's name is the scheme of its URLs.

A module has `open(url)` and `traits(url)`; `store/open.py` imports it by the scheme. Each passes
the contract in `tests/contracts`.
"""
