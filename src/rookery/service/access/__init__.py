"""Access control between decoding and handling: rules in force, decisions, and redaction.

A server makes one `Guard` of its `AccessPolicy`. `access_of` returns what an API needs, from the
table in accesstable.py.
"""
