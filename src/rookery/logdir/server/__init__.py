"""Serves a log directory through a broker: its state, cluster log, reads and maintenance.

`DirectoryService` opens a directory for `broker/storage/directory.py`; `LoadedDirectory` is the
state that it reads at the start.
"""
