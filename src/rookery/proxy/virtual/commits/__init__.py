"""Committed offsets of virtual partitions, in shadow groups."""
