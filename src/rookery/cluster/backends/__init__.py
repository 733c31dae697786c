"""The backends of the cluster log; a module's name is the scheme of its URLs.

A module has `open(url, durability)` and `traits(url)`; `cluster/open.py` imports it by the scheme.
Each passes the contract in `tests/contracts`.
"""
