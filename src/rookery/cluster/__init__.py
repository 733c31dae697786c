"""The cluster log: one totally ordered log of everything that brokers must agree on.

`open_log` returns a `ClusterLog` (port.py) for a URL. A `Replica` proposes events to it and applies
them; a `ClusterMember` registers a process and keeps it alive. `read_entry` and `write_entry` are
the byte form of an entry.
"""
