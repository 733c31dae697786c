"""Ordered rows as Arrow batches: columns, decoders, pace and progress.

`BatchShape` gives a `Batch` its columns, and `Progress` says how far a stream is. Helpers for Arrow
arrays are in arrow.py.
"""
