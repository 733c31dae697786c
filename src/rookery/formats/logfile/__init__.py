"""Reads and writes the file formats of a Kafka broker's data directory, without I/O.

names.py has the names of files (`FileKind`). Each other module is one format, with `parse_…` and
`pack_…` or `format_…`; a `PartitionReplay` computes the producers and aborts of a log.
"""
