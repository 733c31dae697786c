"""Topics as DataFrames: Spark reads and writes the objects of the log, not the brokers."""

from rookery.spark.session import session

__all__ = ["session"]
