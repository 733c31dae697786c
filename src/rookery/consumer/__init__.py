"""Reads all partitions as one stream of Arrow batches in time order."""
