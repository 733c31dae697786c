"""The serialised state for snapshots: one module per part, and the whole.

`write_image` and `read_image` convert a whole `State`; `read_head` reads the number and the digest
alone.
"""
