"""Relays requests that need no decoding, without a Python object for each."""
