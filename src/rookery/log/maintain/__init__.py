"""Maintenance of the log: merges, segments, retention, snapshots and garbage collection.

`Caretaker.round` runs one pass of all steps: `Rewriter` (merges, segments), `Retention`, `Sweeper`,
snapshots.py. Readers and recovery share `refine`, jobs share `Publisher`.
"""
