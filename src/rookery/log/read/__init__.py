"""The read path: rows of the state, or planned ranges of them, to checked batches.

A broker reads by `LogReader` and `Tail`. Without a broker, `ReadPlanner` plans ranges and
`RangeReader` reads them, also in another process. Both read bytes through `Places`, and raise
`MissingObject` if the bytes have moved.
"""
