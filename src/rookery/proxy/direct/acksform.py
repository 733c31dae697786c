"""Where requests contain their acks, which decide whether they have a response."""

from __future__ import annotations

from enum import IntEnum


class AcksForm(IntEnum):
    """The place of the acks in one version of a request."""

    UNREAD = 0
    """Nowhere: the request has a response."""
    FIRST = 1
    """In the first field of a Produce."""
    AFTER_SHORT = 2
    """After a string with a length of two bytes."""
    AFTER_COMPACT = 3
    """After tagged fields of the header and a compact string."""
