"""Reading topics in Spark: options, planning on the driver, batch and stream readers.

Spark's interface is implemented by `BatchReader` and `StreamReader`; both parse `ReadOptions`.
"""
