"""Translates applied entries into the files and records that Kafka would have written.

A `Scribe` takes the applied entries of the log and returns the `DirectoryJob` that writes them.
"""
