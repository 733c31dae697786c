"""The write path: batches are gathered, made durable by a flush target, and committed.

Handlers call `LogWriter.append`. A `FlushTarget` makes large flushes durable: `JournalTarget` or
`Uploads`. markers.py makes the markers that end transactions.
"""
