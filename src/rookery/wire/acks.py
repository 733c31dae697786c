"""Whether a Produce request wants an answer, without decoding it.

A proxy asks this of every Produce that it passes on. Decoding the request takes ten times as long.
"""

from __future__ import annotations

import struct
from typing import Final

from rookery.wire.buffer import Buffer
from rookery.wire.codec import is_one_way
from rookery.wire.message import Api, Request, Response
from rookery.wire.messages.produce import PRODUCE

# API key, version, correlation id and the length of the client id.
_HEAD: Final = struct.Struct(">hhih")
_NUMBER: Final = struct.Struct(">h")
_FIRST_WITH_TRANSACTION: Final = 3


def wants_no_answer(api: Api[Request, Response], frame: Buffer) -> bool:
    """Whether the client of a request reads no answer, like `codec.is_one_way`.

    Raises:
        ProtocolError: the frame is no such request.
        ApiError: UNSUPPORTED_VERSION, if we have no definition of its version.
    """
    acks = _acks_of(frame) if api is PRODUCE else None
    return is_one_way(api, frame) if acks is None else not acks


def _acks_of(frame: Buffer) -> int | None:
    """Return the acks of a Produce request; None if only decoding finds them."""
    try:
        _, version, _, size = _HEAD.unpack_from(frame)
        at = _HEAD.size + max(size, 0)
        if PRODUCE.is_flexible(version):
            # Tagged fields in the header, or a long transactional id: both are rare.
            if frame[at] or frame[at + 1] > 127:
                return None
            at += 1 + max(frame[at + 1], 1)
        elif version >= _FIRST_WITH_TRANSACTION:
            at += _NUMBER.size + max(_NUMBER.unpack_from(frame, at)[0], 0)
        acks: int = _NUMBER.unpack_from(frame, at)[0]
    except (IndexError, struct.error):
        return None
    return acks
