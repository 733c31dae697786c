"""SASL mechanisms, one file each, bytes in and bytes out.

A module has `NAMES`, `client` and `server`; `mechanisms` in sasl.py finds it by name.
"""
