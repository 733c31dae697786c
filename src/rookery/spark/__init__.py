"""Spark source and sink for topics: they access the log's objects directly, not the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookery.exports import lazy_exports

if TYPE_CHECKING:
    from rookery.spark.checkpoint import check_session_checkpoint
    from rookery.spark.functions import decode
    from rookery.spark.lag import LagListener, publish_lag
    from rookery.spark.sparksession import session

__all__ = [
    "LagListener",
    "check_session_checkpoint",
    "decode",
    "publish_lag",
    "session",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "rookery.spark.checkpoint": ["check_session_checkpoint"],
            "rookery.spark.functions": ["decode"],
            "rookery.spark.lag": ["LagListener", "publish_lag"],
            "rookery.spark.sparksession": ["session"],
        },
    )
