"""Clients may use what both the proxy and the upstream know."""

from __future__ import annotations

import pytest

from rookery.errors import ErrorCode
from rookery.proxy.apiversions import change_versions, intersect_versions, refuse_versions
from rookery.proxy.passage import mirror_passages
from rookery.wire.codec import decode, response_frame
from rookery.wire.frame import Frame
from rookery.wire.messages.api_versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from rookery.wire.messages.fetch import FETCH
from rookery.wire.messages.produce import PRODUCE
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE
from rookery.wire.messages.vote import VOTE

PASSAGES = mirror_passages()


def offer(key: int, lowest: int, highest: int) -> ApiVersion:
    return ApiVersion(api_key=key, min_version=lowest, max_version=highest)


@pytest.mark.parametrize(
    ("offered", "common"),
    [
        (offer(FETCH.key, 4, 99), offer(FETCH.key, 4, FETCH.versions.stop - 1)),
        (offer(FETCH.key, 4, 11), offer(FETCH.key, 4, 11)),
        (offer(FETCH.key, 98, 99), None),
        (offer(PRODUCE.key, 0, 13), offer(PRODUCE.key, 0, 13)),
        (offer(SASL_HANDSHAKE.key, 0, 1), offer(SASL_HANDSHAKE.key, 1, 1)),
        (offer(VOTE.key, 0, 2), None),
        (offer(4_711, 0, 2), None),
    ],
)
def test_versions_are_those_that_both_know(offered: ApiVersion, common: ApiVersion | None) -> None:
    answer = ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=[offered])

    assert intersect_versions(answer, PASSAGES).api_keys == ([common] if common else [])


@pytest.mark.parametrize("version", API_VERSIONS.versions)
def test_answer_keeps_its_features_and_gets_the_clients_number(version: int) -> None:
    feature = SupportedFeatureKey(name="group.version", min_version=0, max_version=1)
    answer = ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[offer(FETCH.key, 0, 99)],
        supported_features=[feature] if version >= 3 else [],
    )
    frame = Frame(memoryview(b"".join(response_frame(API_VERSIONS, version, 5, answer))[4:]))

    changed = b"".join(change_versions(PASSAGES, version, -7, frame))

    assert int.from_bytes(changed[4:8], "big", signed=True) == -7
    body = decode(ApiVersionsResponse, version, changed[8:])
    assert body.api_keys == [offer(FETCH.key, 0, FETCH.versions.stop - 1)]
    assert body.supported_features == answer.supported_features


def test_refusal_of_the_upstream_has_the_form_of_version_0() -> None:
    refusal = refuse_versions(3)
    frame = Frame(memoryview(b"".join(refusal)[4:]))

    assert b"".join(change_versions(PASSAGES, 4, 3, frame)) == b"".join(refusal)
