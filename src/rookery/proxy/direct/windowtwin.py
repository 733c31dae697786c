"""Relays runs of whole frames, in plain Python; `_window.pyi` is the contract.

It does not handle sockets: without compiled code, `Connection` and `Upstream` relay each request
themselves.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from rookery.proxy.direct.acksform import AcksForm
from rookery.proxy.direct.skipprogram import STEP_WORDS, SkipOperation
from rookery.wire.buffer import Buffer
from rookery.wire.frame import PREFIX_BYTES, REQUEST_MINIMUM, RESPONSE_MINIMUM

_KEYS: Final = 128
_VERSIONS: Final = 32
_LAST_NUMBER: Final = 2**31 - 1
_LARGEST_BYTES: Final = 8 * 1024 * 1024
_MAX_TAGS: Final = 1024

_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">hhi")

RuleRow = tuple[int, int, int, int, Sequence[int] | None]
SpilledRow = tuple[int, int, int, int, float, int]


class RelayRules:
    """How each version of each API is relayed that needs no decoding."""

    def __init__(self, rows: Sequence[RuleRow]) -> None:
        self.rows = {
            (row[0], row[1]): row for row in rows if 0 <= row[0] < _KEYS and 0 <= row[1] < _VERSIONS
        }


@dataclass(frozen=True, slots=True)
class _Entry:
    rule: RuleRow
    number: int
    client_number: int
    deadline: float


class RelayWindow:
    """The relayed requests without a response, oldest first."""

    def __init__(self, rules: RelayRules, capacity: int) -> None:
        if capacity < 1:
            raise ValueError("a window has room for one request at least")
        self.capacity = capacity
        self.taken = 0
        self.awaited = 0
        self.is_stopped = False
        self.earliest = inf
        self.number = 0
        self.last_seen = 0.0
        self.has_part = False
        self._rules = rules
        self._entries: deque[_Entry] = deque()

    @property
    def count(self) -> int:
        """How many requests have no response."""
        return len(self._entries)

    def take_requests(self, data: Buffer, at: int, end: int, limit: int, now: float) -> int:
        """Renumber the requests in `data[at:end]`, in place; return the end of the run."""
        view = _part(data, at, end)
        self.earliest = inf
        self._begin()
        while (size := self._size(view, at, end, limit, REQUEST_MINIMUM)) is not None:
            frame = view[at + PREFIX_BYTES : at + PREFIX_BYTES + size]
            key, version, client_number = _HEAD.unpack_from(frame)
            rule = self._rules.rows.get((key, version))
            acks = None if rule is None else _acks_of(rule[3], frame)
            if rule is None or acks is None or self.count == self.capacity:
                self.is_stopped = True
                break
            if acks:
                deadline = now + rule[2] / 1000.0
                self._entries.append(_Entry(rule, self.number, client_number, deadline))
                self.earliest = min(self.earliest, deadline)
            _I32.pack_into(frame, 4, self.number)
            self.number = 0 if self.number == _LAST_NUMBER else self.number + 1
            self.taken += 1
            at += PREFIX_BYTES + size
        return at

    def take_answers(self, data: Buffer, at: int, end: int, limit: int) -> int:
        """Restore clients' correlation ids in responses, in place; return the end of the run."""
        view = _part(data, at, end)
        self._begin()
        while self._entries:
            size = self._size(view, at, end, limit, RESPONSE_MINIMUM)
            if size is None:
                break
            frame = view[at + PREFIX_BYTES : at + PREFIX_BYTES + size]
            entry = self._entries[0]
            program = entry.rule[4]
            if _I32.unpack_from(frame)[0] != entry.number or (
                program is not None and not _ends_bare(program, frame)
            ):
                self.is_stopped = True
                break
            _I32.pack_into(frame, 0, entry.client_number)
            self._entries.popleft()
            self.taken += 1
            at += PREFIX_BYTES + size
        if not self._entries and at < end:
            # There is no request for this response.
            self.is_stopped = True
        return at

    def drain(self) -> list[SpilledRow]:
        """Remove and return all requests."""
        rows = [
            (*entry.rule[:2], entry.number, entry.client_number, entry.deadline, entry.rule[2])
            for entry in self._entries
        ]
        self._entries.clear()
        return rows

    def _begin(self) -> None:
        self.taken = 0
        self.awaited = 0
        self.is_stopped = False

    def _size(self, view: memoryview, at: int, end: int, limit: int, minimum: int) -> int | None:
        """Return the size of the next whole frame; None if the run ends."""
        if end - at < PREFIX_BYTES:
            return None
        size: int = _I32.unpack_from(view, at)[0]
        if not minimum <= size <= limit:
            self.is_stopped = True
            return None
        if end - at - PREFIX_BYTES < size:
            self.awaited = PREFIX_BYTES + size
            self.is_stopped = size > _LARGEST_BYTES
            return None
        return size


def _part(data: Buffer, at: int, end: int) -> memoryview:
    view = memoryview(data)
    if not 0 <= at <= end <= len(view):
        raise ValueError("the run is not in the data")
    return view


def _acks_of(form: int, frame: memoryview) -> int | None:
    """Return the acks of a Produce request; None if only decoding finds them."""
    if form == AcksForm.UNREAD:
        return 1
    try:
        at = REQUEST_MINIMUM + 2 + max(_I16.unpack_from(frame, REQUEST_MINIMUM)[0], 0)
        if form == AcksForm.AFTER_COMPACT:
            # Tagged fields in the header, or a long transactional id: both are rare.
            if frame[at] or frame[at + 1] > 127:
                return None
            at += 1 + max(frame[at + 1], 1)
        elif form == AcksForm.AFTER_SHORT:
            at += 2 + max(_I16.unpack_from(frame, at)[0], 0)
        acks: int = _I16.unpack_from(frame, at)[0]
    except (IndexError, struct.error):
        return None
    return acks


def _ends_bare(program: Sequence[int], frame: memoryview) -> bool:
    """Whether a response has no tagged fields in its header and at its end."""
    if len(frame) < RESPONSE_MINIMUM + 1 or frame[RESPONSE_MINIMUM]:
        return False
    try:
        at = _skip(program, 0, len(program), frame, RESPONSE_MINIMUM + 1)
    except (IndexError, ValueError, struct.error):
        return False
    return at == len(frame) - 1 and not frame[at]


def _skip(program: Sequence[int], step: int, stop: int, frame: memoryview, at: int) -> int:
    """Return the position after the fields of some steps.

    Raises:
        ValueError: some of them are missing.
    """
    while step < stop:
        operation, operand, is_nullable = program[step : step + STEP_WORDS]
        if operation == SkipOperation.FIXED:
            at = _forward(frame, at, operand)
        elif operation == SkipOperation.TAGS:
            at = _skip_tags(frame, at)
        else:
            size, at = _read_size(operation, frame, at)
            if size < -1 or size > len(frame) - at or (size < 0 and not is_nullable):
                raise ValueError("a size beyond the end")
            if operation in (SkipOperation.COMPACT_ARRAY, SkipOperation.LONG_ARRAY):
                for _ in range(size):
                    at = _skip(program, step + STEP_WORDS, operand, frame, at)
                step = operand
                continue
            at += max(size, 0)
        step += STEP_WORDS
    return at


def _forward(frame: memoryview, at: int, size: int) -> int:
    if size > len(frame) - at:
        raise ValueError("a field beyond the end")
    return at + size


def _skip_tags(frame: memoryview, at: int) -> int:
    count, at = _read_uvarint(frame, at)
    if count > _MAX_TAGS:
        raise ValueError("too many tagged fields")
    for _ in range(count):
        _, at = _read_uvarint(frame, at)
        size, at = _read_uvarint(frame, at)
        at = _forward(frame, at, size)
    return at


def _read_size(operation: int, frame: memoryview, at: int) -> tuple[int, int]:
    if operation in (SkipOperation.COMPACT_BYTES, SkipOperation.COMPACT_ARRAY):
        value, at = _read_uvarint(frame, at)
        return value - 1, at
    if operation == SkipOperation.SHORT_BYTES:
        return _I16.unpack_from(frame, at)[0], at + 2
    return _I32.unpack_from(frame, at)[0], at + 4


def _read_uvarint(frame: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number of more than five bytes")
