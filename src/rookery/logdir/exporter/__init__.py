"""Exports a cluster's log as the data directory of a Kafka broker.

`Export` writes a directory by `ExportSettings` and returns an `ExportReport`.
"""
