"""Message formats 0 and 1 (Kafka before 0.11): recognised, and refused as Kafka 4 refuses them.

Kafka 4 answers INVALID_RECORD to a Produce whose records are not of magic 2. Where such data is
found in a log, UNSUPPORTED_FOR_MESSAGE_FORMAT says that a Kafka up to 3.9 must rewrite it first.
"""

from __future__ import annotations

from rookery.errors import ApiError, ErrorCode

# The kernel's names for them: all formats keep their magic in the same byte.
MAGICS = ("magic 0", "magic 1")


def refuse(magic: str, *, from_producer: bool) -> ApiError:
    """Make the error for a producer that sends an old format, or a log that holds one."""
    if from_producer:
        return ApiError(
            ErrorCode.INVALID_RECORD,
            f"records must be of magic 2, not {magic}; use a client that speaks Produce 3 or later",
        )
    return ApiError(
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        f"records of {magic} cannot be read; let Kafka 3.9 or older rewrite the topic first",
    )
