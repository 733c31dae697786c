"""Maps etcd's rejections of calls to exceptions."""

from __future__ import annotations

from typing import Final

from rookery.cluster.etcd.address import EtcdAddress
from rookery.cluster.etcd.rpc import grpc
from rookery.errors import Conflict, Corrupt, Unavailable


class EtcdFull(Unavailable):
    """etcd has no space for writes; deleting is possible."""


class HistoryCompacted(Conflict):
    """The requested history was compacted: read the current state."""


class StaleToken(Conflict):
    """The token is no longer valid: request another."""


# Another member may succeed, or the same one a moment later.
_PASSING: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.ABORTED,
    }
)
_FULL: Final = "database space exceeded"
_BUSY: Final = "too many requests"
_OLD_TOKEN: Final = ("invalid auth token", "revision of auth store is old")


def refusal(address: EtcdAddress, error: grpc.aio.AioRpcError) -> Exception | None:
    """Return the exception for the caller, or None if the call can be retried."""
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _FULL in details:
        return _full(address)
    if code in _PASSING or _BUSY in details:
        return None
    if any(words in details for words in _OLD_TOKEN):
        return StaleToken(details)
    if code is grpc.StatusCode.OUT_OF_RANGE:
        return HistoryCompacted(details)
    if code is grpc.StatusCode.DATA_LOSS:
        return Corrupt(
            f"{address}: {details}: members hold different data (alarm CORRUPT); replace the "
            "member that is wrong, then disarm the alarm"
        )
    return Unavailable(f"{address} refuses: {details or code.name}{_advice(details)}")


def _full(address: EtcdAddress) -> EtcdFull:
    return EtcdFull(
        f"{address} is full (alarm NOSPACE): its database has reached --quota-backend-bytes. "
        "Let a broker trim the cluster log or delete other keys and compact, then run "
        "`etcdctl defrag --cluster` and `etcdctl alarm disarm`, or give etcd a larger quota"
    )


def _advice(details: str) -> str:
    if "too large" in details or "too many operations" in details:
        return "; leave etcd's --max-request-bytes and --max-txn-ops at their defaults or above"
    if "permission denied" in details:
        return "; grant the user readwrite on the log's prefix"
    if "user name is empty" in details:
        return "; add user and password_file to the URL"
    return ""
