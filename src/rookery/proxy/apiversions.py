"""The versions and features that a client may use: those that both the proxy and the upstream know.

Clients act on some features: at `transaction.version` 2, for example, producers raise their epoch
for every transaction. A feature that the proxy does not know may need APIs that do not pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rookery.cluster.state.state import FEATURE_LEVEL
from rookery.errors import ErrorCode, ProtocolError
from rookery.net.session import ClientSession
from rookery.proxy.passage import PassageTable
from rookery.wire.buffer import Buffer
from rookery.wire.codec import decode, read_request, response_frame
from rookery.wire.frame import RESPONSE_MINIMUM, Frame, renumber
from rookery.wire.messages.api_versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from rookery.wire.messages.produce import PRODUCE

KNOWN_FEATURES: Final[Mapping[str, range]] = {
    "eligible.leader.replicas.version": range(2),
    "group.version": range(2),
    "kraft.version": range(2),
    "metadata.version": range(1, 31),
    "rookery.version": range(1, FEATURE_LEVEL + 1),
    "share.version": range(2),
    "streams.version": range(2),
    "transaction.version": range(3),
}
"""The levels of each feature that the proxy knows: those of Kafka 4.3 and of this release."""


def intersect_versions(answer: ApiVersionsResponse, passages: PassageTable) -> bool:
    """Leave in an upstream's answer only what the proxy knows, too; return whether it changes."""
    versions = [
        common
        for offered in answer.api_keys
        if (common := _common(offered, passages.versions(offered.api_key))) is not None
    ]
    supported = [
        SupportedFeatureKey(name=each.name, min_version=levels.start, max_version=levels[-1])
        for each in answer.supported_features
        if (levels := _intersect_levels(each.name, each.min_version, each.max_version))
    ]
    finalized = [
        FinalizedFeatureKey(
            name=each.name, min_version_level=levels.start, max_version_level=levels[-1]
        )
        for each in answer.finalized_features
        if (levels := _intersect_levels(each.name, each.min_version_level, each.max_version_level))
    ]
    before = answer.api_keys, answer.supported_features, answer.finalized_features
    answer.api_keys, answer.supported_features = versions, supported
    answer.finalized_features = finalized
    return (versions, supported, finalized) != before


def _intersect_levels(name: str, lowest: int, highest: int) -> range:
    """Return the levels of a feature that both know.

    The cluster may work at a level above those that the proxy knows. Clients then use the highest
    that it knows, as clients do that know no higher level themselves.
    """
    known = KNOWN_FEATURES.get(name, range(0))
    return range(max(lowest, known.start), min(highest + 1, known.stop))


def common_features(offered: Sequence[ApiVersionsResponse]) -> list[SupportedFeatureKey]:
    """Return the levels of each feature that all brokers support."""
    rows = [{row.name: row for row in answer.supported_features} for answer in offered]
    common = []
    for name in rows[0]:
        each = [row[name] for row in rows if name in row]
        lowest = max(row.min_version for row in each)
        highest = min(row.max_version for row in each)
        if len(each) == len(rows) and lowest <= highest:
            common.append(SupportedFeatureKey(name=name, min_version=lowest, max_version=highest))
    return common


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


def note_software(session: ClientSession, frame: Frame) -> None:
    """Record the client library that an ApiVersions request names (KIP-511).

    A request that cannot be decoded is left to the broker.
    """
    try:
        _, request = read_request(API_VERSIONS, frame)
    except ProtocolError:
        return
    session.note_software(request.client_software_name, request.client_software_version)


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
    answer = decode(ApiVersionsResponse, version, body)
    if intersect_versions(answer, passages):
        return response_frame(API_VERSIONS, version, correlation_id, answer)
    return renumber(frame, correlation_id)
