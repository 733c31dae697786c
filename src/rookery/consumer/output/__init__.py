"""Ordered rows as Arrow batches: columns, decoders, pace and progress."""
