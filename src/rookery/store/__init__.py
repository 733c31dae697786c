"""Stores for immutable objects by key, which are created only if absent.

`open_store` returns a `Store` (port.py) for a URL, and `store_traits` its traits. Wrappers of
stores are in wrappers.py: names below a prefix, counts of requests.
"""
