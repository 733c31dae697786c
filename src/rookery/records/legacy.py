"""Message formats 0 and 1 (Kafka before 0.11): detected, and rejected like in Kafka 4.

Kafka 4 returns INVALID_RECORD to a Produce request whose records do not have magic 2. For such data
in a log, UNSUPPORTED_FOR_MESSAGE_FORMAT means that a Kafka up to 3.9 must rewrite it first.
"""

from __future__ import annotations

from rookery.errors import ApiError, ErrorCode

# The kernel's names for them; all formats store their magic in the same byte.
MAGICS = ("magic 0", "magic 1")


def refuse(magic: str, *, from_producer: bool) -> ApiError:
    """Return the error for a producer that sends an old format, or a log that contains one."""
    if from_producer:
        return ApiError(
            ErrorCode.INVALID_RECORD,
            f"records must be of magic 2, not {magic}; use a client that speaks Produce 3 or later",
        )
    return ApiError(
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        f"records of {magic} cannot be read; let Kafka 3.9 or older rewrite the topic first",
    )
