"""etcd's requests and responses, limited to the messages and fields that a log needs.

The field numbers are those of etcd's public API (`etcdserverpb`), which are never reused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rookery.cluster.etcd.protobuf import Value, present, read, write
from rookery.errors import ProtocolError

RANGE: Final = "/etcdserverpb.KV/Range"
TXN: Final = "/etcdserverpb.KV/Txn"
DELETE: Final = "/etcdserverpb.KV/DeleteRange"
COMPACT: Final = "/etcdserverpb.KV/Compact"
WATCH: Final = "/etcdserverpb.Watch/Watch"
AUTHENTICATE: Final = "/etcdserverpb.Auth/Authenticate"

_BY_VALUE: Final = 3
_DELETED: Final = 1


class Pair(NamedTuple):
    """A key and its value."""

    key: bytes
    value: bytes


class RangeResult(NamedTuple):
    """The contents of a range, and the revision of the read."""

    revision: int
    pairs: list[Pair]


class TransactionResult(NamedTuple):
    """The result of a transaction: the branch that ran, and what each operation returned."""

    succeeded: bool
    revision: int
    results: list[list[Pair]]
    inner: bytes
    """The response to a nested transaction, if there was one; see `read_txn`."""


class WatchResult(NamedTuple):
    """A message of a watch: values that were put, or the end of the watch."""

    values: list[bytes]
    is_canceled: bool
    compact_revision: int
    reason: str


# Requests.


def range_request(
    key: bytes, end: bytes = b"", *, limit: int = 0, revision: int = 0, keys_only: bool = False
) -> bytes:
    """Request a key, or the keys from it up to but not including an end, in order.

    The read is at a given revision, or linearizable at the newest one.
    """
    return write((1, key), (2, end), (3, limit), (4, revision), (8, int(keys_only)))


def delete_request(key: bytes, end: bytes) -> bytes:
    """Delete the keys from one up to but not including another."""
    return write((1, key), (2, end))


def txn_request(
    compares: Iterable[bytes], success: Iterable[bytes], failure: Iterable[bytes] = ()
) -> bytes:
    """Run the operations of one branch or the other atomically, depending on the compares."""
    fields = [(1, compare) for compare in compares]
    fields += [(2, operation) for operation in success]
    fields += [(3, operation) for operation in failure]
    return write(*fields)


def compact_request(revision: int) -> bytes:
    """Discard versions that were overwritten or deleted before a revision."""
    return write((1, revision))


def watch_request(key: bytes, revision: int) -> bytes:
    """Watch a key, starting at a revision."""
    return write((1, write((1, key), (3, revision))))


def authenticate_request(user: str, password: str) -> bytes:
    """Request a token."""
    return write((1, user.encode()), (2, password.encode()))


# Parts of a transaction.


def value_is(key: bytes, value: bytes) -> bytes:
    """Compare: the key exists and has this value."""
    return write((2, _BY_VALUE), (3, key)) + present(7, value)


def is_absent(key: bytes) -> bytes:
    """Compare: the key does not exist."""
    return write((3, key)) + present(4, 0)


def put(key: bytes, value: bytes) -> bytes:
    """Operation: put a value."""
    return write((2, write((1, key), (2, value))))


def get(request: bytes) -> bytes:
    """Operation: read a range."""
    return write((1, request))


def delete(key: bytes) -> bytes:
    """Operation: delete a key."""
    return write((3, write((1, key))))


def nest(request: bytes) -> bytes:
    """Operation: run a nested transaction."""
    return write((4, request))


# Answers.


def read_range(data: bytes) -> RangeResult:
    """Decode the response to a range request."""
    fields = list(read(data))
    return RangeResult(
        _revision(fields), [_pair(_bytes(value)) for number, value in fields if number == 2]
    )


def read_revision(data: bytes) -> int:
    """Decode the revision of any response."""
    return _revision(list(read(data)))


def read_txn(data: bytes) -> TransactionResult:
    """Decode the response to a transaction."""
    fields = list(read(data))
    steps = [_bytes(value) for number, value in fields if number == 3]
    succeeded = any(number == 2 and value for number, value in fields)
    inner = [_bytes(value) for step in steps for number, value in read(step) if number == 4]
    return TransactionResult(
        succeeded, _revision(fields), [_step(step) for step in steps], inner[0] if inner else b""
    )


def read_watch(data: bytes) -> WatchResult:
    """Decode a message of a watch; deletions are omitted."""
    fields = list(read(data))
    single = {number: value for number, value in fields if number != 11}
    values = [_event(_bytes(value)) for number, value in fields if number == 11]
    return WatchResult(
        [value for value in values if value is not None],
        bool(single.get(4)),
        _int(single.get(5, 0)),
        _bytes(single.get(6, b"")).decode("utf-8", "replace"),
    )


def read_token(data: bytes) -> str:
    """Decode the response to an authentication."""
    return _bytes(dict(read(data)).get(2, b"")).decode("ascii", "replace")


def _step(data: bytes) -> list[Pair]:
    for number, value in read(data):
        if number == 1:
            return read_range(_bytes(value)).pairs
    return []


def _event(data: bytes) -> bytes | None:
    fields = dict(read(data))
    if fields.get(1) == _DELETED:
        return None
    return _pair(_bytes(fields.get(2, b""))).value


def _pair(data: bytes) -> Pair:
    fields = dict(read(data))
    return Pair(_bytes(fields.get(1, b"")), _bytes(fields.get(5, b"")))


def _revision(fields: Sequence[tuple[int, Value]]) -> int:
    for number, value in fields:
        if number == 1:
            return _int(dict(read(_bytes(value))).get(3, 0))
    return 0


def _bytes(value: Value) -> bytes:
    if isinstance(value, int):
        raise ProtocolError("a message from etcd has a number where bytes belong")
    return value


def _int(value: Value) -> int:
    if not isinstance(value, int):
        raise ProtocolError("a message from etcd has bytes where a number belongs")
    return value
