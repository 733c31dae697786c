"""The Python environment of a Spark cluster: packed, cached, shipped and unpacked.

`pack` makes an archive, `ArchiveCache` keeps it, and `shipment` sends it. A `Submission` is a
command line for `spark-submit`.
"""
