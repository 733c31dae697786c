"""Writing topics in Spark: options, staging in tasks, and the atomic commit on the driver.

Spark's interface is implemented by the writers that `batch_writer` and `stream_writer` return.
"""
