"""Spark source and sink for topics: they access the log's objects directly, not the brokers."""

from rookery.spark.session import session

__all__ = ["session"]
