"""Maintenance of the log: merges, segments, retention, snapshots and garbage collection."""
