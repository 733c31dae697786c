"""Time order over all partitions: decoded blocks, keys, the merge, and the engine around it.

`StreamEngine` merges the `Shelves` of `fetch` to `ReadyRows`, on the thread of its caller.
"""
