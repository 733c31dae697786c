"""Fuzz the splitter: however bytes are cut, the frames are the same, or the same refusal.

Run as `python fuzz/frame.py -max_total_time=60`.
"""

from __future__ import annotations

import struct
import sys

import atheris

with atheris.instrument_imports(include=["rookery"]):
    from rookery.errors import ProtocolError
    from rookery.wire.frame import FrameSplitter

LIMIT = 300_000
MINIMUM = 8


def expected(data: bytes) -> tuple[list[bytes], bool]:
    """Cut in the plainest way: the frames before the end or a wrong length, and if it is wrong."""
    frames: list[bytes] = []
    at = 0
    while at + 4 <= len(data):
        (length,) = struct.unpack_from(">i", data, at)
        if not MINIMUM <= length <= LIMIT:
            return frames, True
        if at + 4 + length > len(data):
            break
        frames.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    return frames, False


def received(data: bytes, cuts: list[int]) -> tuple[list[bytes], bool]:
    """Cut with the splitter, which receives some bytes at a time."""
    splitter, views, at, turn = FrameSplitter(LIMIT, minimum=MINIMUM), [], 0, 0
    try:
        while at < len(data):
            room = splitter.buffer()
            count = min(len(room), cuts[turn % len(cuts)], len(data) - at)
            if count == 0:
                raise AssertionError("no room to receive into")
            room[:count] = data[at : at + count]
            splitter.note_received(count)
            at, turn = at + count, turn + 1
            while (frame := splitter.take()) is not None:
                views.append(frame)
    except ProtocolError:
        return [bytes(view) for view in views], True
    if splitter.pending != len(data) - sum(4 + len(view) for view in views):
        raise AssertionError("the count of pending bytes is wrong")
    return [bytes(view) for view in views], False


def made(provider: atheris.FuzzedDataProvider) -> bytes:
    """Make input that is mostly frames: long ones too, which a fuzzer would not find by itself."""
    pieces = []
    for _ in range(provider.ConsumeIntInRange(0, 6)):
        length = provider.ConsumeIntInRange(0, LIMIT)
        fill = provider.ConsumeIntInRange(0, 255)
        pieces.append(struct.pack(">i", length) + bytes([fill]) * length)
    rest: bytes = provider.ConsumeBytes(provider.remaining_bytes())
    return b"".join(pieces) + rest


def one_input(data: bytes) -> None:
    """Compare both ways."""
    provider = atheris.FuzzedDataProvider(data)
    cuts = [provider.ConsumeIntInRange(1, 100_000) for _ in range(4)]
    stream = made(provider)
    if received(stream, cuts) != expected(stream):
        raise AssertionError("the splitter cuts otherwise")


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
