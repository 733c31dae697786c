"""The versions that a client may use: those that both the proxy and the upstream know.

Of features, the upstream's answer is passed on. They say how brokers work together, and the proxy
passes the requests of every feature whose APIs it knows.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.proxy.passage import PassageTable
from rookery.wire.buffer import Buffer
from rookery.wire.codec import decode, response_frame
from rookery.wire.frame import RESPONSE_MINIMUM, Frame
from rookery.wire.messages.api_versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from rookery.wire.messages.produce import PRODUCE


def intersect_versions(answer: ApiVersionsResponse, passages: PassageTable) -> ApiVersionsResponse:
    """Leave in an upstream's answer only what passes through the proxy; return the answer."""
    answer.api_keys = [
        common
        for offered in answer.api_keys
        if (common := _common(offered, passages.versions(offered.api_key))) is not None
    ]
    return answer


def _common(offered: ApiVersion, known: range) -> ApiVersion | None:
    # Old librdkafka does not compress if Produce 0 to 2 are missing, so the upstream's lowest
    # version stays, even where the upstream itself refuses it (KAFKA-18659).
    lowest = offered.min_version
    if offered.api_key != PRODUCE.key:
        lowest = max(lowest, known.start)
    highest = min(offered.max_version, known.stop - 1)
    if not known or highest < max(lowest, known.start):
        return None
    return ApiVersion(api_key=offered.api_key, min_version=lowest, max_version=highest)


def refuse_versions(correlation_id: int) -> list[Buffer]:
    """Answer an ApiVersions request of an unknown version: the client asks again in a known one."""
    answer = API_VERSIONS.refuse(ApiVersionsRequest(), ErrorCode.UNSUPPORTED_VERSION)
    return response_frame(API_VERSIONS, 0, correlation_id, answer)


def change_versions(
    passages: PassageTable, version: int, correlation_id: int, frame: Frame
) -> list[Buffer]:
    """Return an upstream's response to ApiVersions as the client gets it.

    Raises:
        ProtocolError: the response cannot be decoded.
    """
    body = memoryview(frame)[RESPONSE_MINIMUM:]
    # A broker that does not know the version answers in the form of version 0.
    if int.from_bytes(body[:2], "big", signed=True) == ErrorCode.UNSUPPORTED_VERSION:
        version = 0
    answer = intersect_versions(decode(ApiVersionsResponse, version, body), passages)
    return response_frame(API_VERSIONS, version, correlation_id, answer)
