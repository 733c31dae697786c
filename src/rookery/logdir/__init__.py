"""Kafka's own data directory: reading, serving, writing, import and export.

A `LogDirectory` has a `PartitionLog` for each partition and the `MetadataLog`; they never write.
`writer` and `server` do.
"""
