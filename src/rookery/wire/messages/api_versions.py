"""ApiVersions (key 18): the APIs and versions that a broker serves; a connection's first request.

It is read before either side knows what the other can read, so two rules are its own:

- The response header is always version 0, without tagged fields, in flexible versions too.
- A version that the broker does not know is answered in version 0's form with UNSUPPORTED_VERSION
  (35). That answer lists ApiVersions itself, and the client asks again in a version from there.

Versions:
    1 the response has the throttle time.
    2 a throttled client is answered at once and waits by itself (KIP-219).
    3 flexible; the client's software names itself (KIP-511); the cluster's features (KIP-584).
    4 features whose lowest level is 0 are listed too, which older clients would stumble over.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, Message, field, i16, i32, i64


class ApiVersionsRequest(Message):
    """A client asks what the broker can do."""

    # Letters, digits, dots and hyphens only, else the broker answers INVALID_REQUEST.
    client_software_name: str = field(since=3, default="")
    client_software_version: str = field(since=3, default="")


class ApiVersionsResponse(Message):
    """The APIs that the broker serves, and the features that the cluster has enabled."""

    error_code: ErrorCode
    api_keys: list[ApiVersion]
    throttle_time_ms: i32 = field(since=1, default=0)
    supported_features: list[SupportedFeatureKey] = field(since=3, tag=0, factory=list)
    # Grows with each change of the finalized features; -1: unknown.
    finalized_features_epoch: i64 = field(since=3, tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = field(since=3, tag=2, factory=list)
    zk_migration_ready: bool = field(since=3, tag=3, default=False)  # a relic of ZooKeeper


class ApiVersion(Message):
    """The versions of one API, both ends included."""

    api_key: i16
    min_version: i16
    max_version: i16


class SupportedFeatureKey(Message):
    """The levels of a feature that this broker could work at."""

    name: str
    min_version: i16
    max_version: i16


class FinalizedFeatureKey(Message):
    """The levels of a feature that the whole cluster works at."""

    name: str
    max_version_level: i16
    min_version_level: i16


def refuse(request: ApiVersionsRequest, code: ErrorCode) -> ApiVersionsResponse:
    """Answer with the code; to UNSUPPORTED_VERSION add the versions in which to ask again."""
    versions = API_VERSIONS.versions
    own = ApiVersion(
        api_key=API_VERSIONS.key, min_version=versions.start, max_version=versions.stop - 1
    )
    return ApiVersionsResponse(
        error_code=code, api_keys=[own] if code is ErrorCode.UNSUPPORTED_VERSION else []
    )


API_VERSIONS = Api(
    key=18,
    request=ApiVersionsRequest,
    response=ApiVersionsResponse,
    versions=range(5),
    flexible=3,
    refuse=refuse,
)
