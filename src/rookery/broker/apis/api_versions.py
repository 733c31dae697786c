"""ApiVersions: what this broker serves, derived from its routes."""

from __future__ import annotations

from rookery.broker.call import Call
from rookery.broker.registry import handles, routes
from rookery.errors import ErrorCode
from rookery.wire.messages.api_versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from rookery.wire.messages.produce import PRODUCE


@handles(API_VERSIONS)
def api_versions(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Tell the versions of every API, and remember what the client calls itself."""
    call.connection.software = (
        request.client_software_name or "",
        request.client_software_version or "",
    )
    return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=advertised())


def advertised() -> list[ApiVersion]:
    """List what is served; of Produce also the versions that are refused.

    Old librdkafka takes a missing Produce 0 to 2 as a sign that it must not compress
    (KAFKA-18659), so they are listed although nobody may use them.
    """
    return [
        ApiVersion(
            api_key=key,
            min_version=0 if key == PRODUCE.key else route.versions.start,
            max_version=route.versions.stop - 1,
        )
        for key, route in routes().items()
    ]
