"""A reader that is killed: `python -m tests.consumer.hard.reader BOOTSTRAP TOPIC FILE [GROUP]`.

It writes every batch, with the checkpoint after it, as one frame into a file. Started again, it
cuts off a frame that is not whole and continues where the last whole one ended; with a group, where
the group's commit says, which comes after the frame.
"""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import pyarrow as pa

from rookery.consumer.api import read
from rookery.consumer.checkpoint import Checkpoint
from rookery.consumer.positions import Position

_HEAD: Final = struct.Struct(">III")  # bytes of rows, bytes of the checkpoint, CRC of both
BATCH_ROWS: Final = 500


def main(bootstrap: str, topic: str, file: str, group: str | None = None) -> None:
    """Read from where it was to the end."""
    path = Path(file)
    start: Position = "committed" if group else "earliest"
    good = 0
    for _, checkpoint, end in frames(path):
        start, good = "committed" if group else checkpoint, end
    with path.open("ab") as out:
        out.truncate(good)
        with read(
            bootstrap, topic, start=start, group=group, batch_rows=BATCH_ROWS, memory=8 << 20
        ) as stream:
            for batch in stream:
                _append(out, batch.data, batch.checkpoint)
                if group:
                    batch.commit()


def frames(path: Path) -> Iterator[tuple[pa.RecordBatch, Checkpoint, int]]:
    """Yield the whole frames of a file: rows, checkpoint, and where the frame ends."""
    data = path.read_bytes() if path.exists() else b""
    at = 0
    while at + _HEAD.size <= len(data):
        size, more, crc = _HEAD.unpack_from(data, at)
        body = data[at + _HEAD.size : at + _HEAD.size + size + more]
        if len(body) < size + more or zlib.crc32(body) != crc:
            return
        at += _HEAD.size + size + more
        with pa.ipc.open_stream(body[:size]) as stream:
            [batch] = list(stream)
        yield batch, Checkpoint.from_json(body[size:].decode()), at


def _append(out: IO[bytes], batch: pa.RecordBatch, checkpoint: Checkpoint) -> None:
    """Write a frame in small pieces, so that a kill finds it half written."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    rows, text = sink.getvalue().to_pybytes(), checkpoint.to_json().encode()
    body = rows + text
    frame = _HEAD.pack(len(rows), len(text), zlib.crc32(body)) + body
    for start in range(0, len(frame), 4096):
        out.write(frame[start : start + 4096])
        out.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
