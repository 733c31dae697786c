"""Chooses the version of each API: the highest that both sides support."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from rookery.errors import ApiError, ErrorCode, ProtocolError
from rookery.net.upstream import Upstream
from rookery.wire.codec import decode_at, read_response, request_frame
from rookery.wire.frame import Frame
from rookery.wire.message import Api, Request, Response
from rookery.wire.messages.api_versions import (
    API_VERSIONS,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

_ERROR_AT: Final = 4
_BODY_AT: Final = 4


class Versions:
    """The API versions of one broker."""

    def __init__(
        self, broker: str, ranges: Mapping[int, tuple[int, int]], highest: Mapping[int, int]
    ) -> None:
        """Store the broker's versions.

        Args:
            broker: its name, for messages.
            ranges: its lowest and highest version of each API, by key.
            highest: the highest versions that the user allows, by key.
        """
        self._broker = broker
        self._ranges = ranges
        self._highest = highest

    def choose(
        self, api: Api[Request, Response], *, lowest: int = 0, highest: int | None = None
    ) -> int:
        """Return the highest version that both sides support, within the caller's bounds.

        Raises:
            ApiError: UNSUPPORTED_VERSION; the message names the broker and both ranges.
        """
        ours_low = max(api.versions.start, lowest)
        ours_high = min(api.versions.stop - 1, self._highest.get(api.key, 0x7FFF))
        if highest is not None:
            ours_high = min(ours_high, highest)
        offered = self._ranges.get(api.key)
        if offered is None:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"broker {self._broker} does not offer {api.name}; it is too old for this call",
            )
        chosen = min(ours_high, offered[1])
        if chosen < max(ours_low, offered[0]):
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"broker {self._broker} speaks {api.name} {offered[0]} to {offered[1]}, "
                f"this client {ours_low} to {ours_high}: there is none in common",
            )
        return chosen

    def offers(self, api: Api[Request, Response]) -> bool:
        """Return whether the broker supports the API at all."""
        return api.key in self._ranges


async def negotiate(
    upstream: Upstream, client_id: str, highest: Mapping[int, int], timeout_ms: int
) -> Versions:
    """Request a broker's API versions, in the newest version that it understands.

    Raises:
        ApiError: the broker does not report its versions.
    """
    newest = min(API_VERSIONS.versions.stop - 1, highest.get(API_VERSIONS.key, 0x7FFF))
    response = await _ask(upstream, client_id, newest, timeout_ms)
    if response.error_code is ErrorCode.UNSUPPORTED_VERSION:
        response = await _ask(upstream, client_id, _choose_offered(response, newest), timeout_ms)
    if response.error_code is not ErrorCode.NONE:
        raise ApiError(response.error_code, f"broker {upstream.name} does not report its versions")
    ranges = {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}
    return Versions(upstream.name, ranges, highest)


def _choose_offered(response: ApiVersionsResponse, newest: int) -> int:
    """Return the version for the second request; brokers before Kafka 2.4 name none, so 0."""
    for row in response.api_keys:
        if row.api_key == API_VERSIONS.key:
            return min(newest - 1, row.max_version)
    return 0


async def _ask(
    upstream: Upstream, client_id: str, version: int, timeout_ms: int
) -> ApiVersionsResponse:
    request = ApiVersionsRequest(
        client_software_name="rookery", client_software_version=_own_version()
    )
    parts = request_frame(API_VERSIONS, version, 0, client_id, request)
    # Not `call`: the response to an unknown version has the format of version 0.
    frame = await upstream.forward([memoryview(parts[0])[4:], *parts[1:]], timeout_ms)
    return _read(version, frame)


def _read(version: int, frame: Frame) -> ApiVersionsResponse:
    if len(frame) < _ERROR_AT + 2:
        raise ProtocolError(f"an ApiVersions response of {len(frame)} bytes")
    code = int.from_bytes(frame[_ERROR_AT : _ERROR_AT + 2], "big", signed=True)
    if code != ErrorCode.UNSUPPORTED_VERSION:
        return read_response(API_VERSIONS, version, frame)
    response, _ = decode_at(ApiVersionsResponse, 0, frame, _BODY_AT)
    return response


def _own_version() -> str:
    try:
        return version("rookery")
    except PackageNotFoundError:  # run from a source tree
        return "0"
