"""The log: batches are made durable, read again, maintained, checked and recovered.

This package has what its parts share: settings, a `LogLocation` with its `Handles` (origin.py), and
`check_not_lost`. The entry points are `LogWriter` (write), `LogReader` (read), `Caretaker`
(maintain), `check` (check) and `plan` (recover).
"""
