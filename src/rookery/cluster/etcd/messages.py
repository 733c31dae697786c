"""etcd's requests and answers: those few, and of them those fields, that a log needs.

The numbers are those of etcd's public API (`etcdserverpb`), which are never given anew.
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
    """What a range held, and as of which revision."""

    revision: int
    pairs: list[Pair]


class TransactionResult(NamedTuple):
    """What a transaction did: its first branch or its second, and what each step found."""

    succeeded: bool
    revision: int
    found: list[list[Pair]]
    inner: bytes
    """The answer to a transaction in the transaction, if there was one; see `read_txn`."""


class WatchResult(NamedTuple):
    """What a watch tells: values that were put, or that it ends."""

    values: list[bytes]
    is_canceled: bool
    compact_revision: int
    reason: str


# Requests.


def range_request(
    key: bytes, end: bytes = b"", *, limit: int = 0, revision: int = 0, keys_only: bool = False
) -> bytes:
    """Ask for a key, or for the keys from it up to but not including an end, in their order.

    As of a revision, or as of now, counting all that was answered before.
    """
    return write((1, key), (2, end), (3, limit), (4, revision), (8, int(keys_only)))


def delete_request(key: bytes, end: bytes) -> bytes:
    """Delete the keys from one up to but not including another."""
    return write((1, key), (2, end))


def txn_request(
    compares: Iterable[bytes], success: Iterable[bytes], failure: Iterable[bytes] = ()
) -> bytes:
    """Do the steps of one branch or of the other, at once, as the compares say."""
    fields = [(1, one) for one in compares]
    fields += [(2, one) for one in success]
    fields += [(3, one) for one in failure]
    return write(*fields)


def compact_request(revision: int) -> bytes:
    """Forget what was overwritten or deleted before a revision."""
    return write((1, revision))


def watch_request(key: bytes, revision: int) -> bytes:
    """Watch a key, from a revision on."""
    return write((1, write((1, key), (3, revision))))


def authenticate_request(user: str, password: str) -> bytes:
    """Ask for a token."""
    return write((1, user.encode()), (2, password.encode()))


# Parts of a transaction.


def value_is(key: bytes, value: bytes) -> bytes:
    """Compare: the key is there and has this value."""
    return write((2, _BY_VALUE), (3, key)) + present(7, value)


def is_absent(key: bytes) -> bytes:
    """Compare: the key is not there."""
    return write((3, key)) + present(4, 0)


def put(key: bytes, value: bytes) -> bytes:
    """Step: put a value."""
    return write((2, write((1, key), (2, value))))


def get(request: bytes) -> bytes:
    """Step: ask for a range."""
    return write((1, request))


def delete(key: bytes) -> bytes:
    """Step: delete a key."""
    return write((3, write((1, key))))


def nested(request: bytes) -> bytes:
    """Step: do a transaction."""
    return write((4, request))


# Answers.


def read_range(data: bytes) -> RangeResult:
    """Read the answer to a range request."""
    fields = list(read(data))
    return RangeResult(
        _revision(fields), [_pair(_bytes(value)) for number, value in fields if number == 2]
    )


def read_revision(data: bytes) -> int:
    """Read as of which revision any answer is."""
    return _revision(list(read(data)))


def read_txn(data: bytes) -> TransactionResult:
    """Read the answer to a transaction."""
    fields = list(read(data))
    steps = [_bytes(value) for number, value in fields if number == 3]
    succeeded = any(number == 2 and value for number, value in fields)
    inner = [_bytes(value) for step in steps for number, value in read(step) if number == 4]
    return TransactionResult(
        succeeded, _revision(fields), [_step(step) for step in steps], inner[0] if inner else b""
    )


def read_watch(data: bytes) -> WatchResult:
    """Read what came on a watch; deletions are left out."""
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
    """Read the answer to an authentication."""
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
