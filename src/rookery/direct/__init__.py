"""Access to the log without a broker: reads and writes go directly to the store and cluster log.

A `DirectLog` opens the log at a `ClusterAddress` for async code, a `BlockingLog` for all other
code; `shared` returns the one of the process. `RowStager` and `commit` write. Ranges of offsets
come from offsets.py, and `BlockingReader` reads them.
"""
