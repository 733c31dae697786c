"""The parts of the cluster log in an object store (`backends/store.py`).

`backends/store.py` composes it of `EntryObjects`, an `ObjectAppender`, the `End` and the `Floor` of
the log; no other module imports it.
"""
