"""ApiVersions: what this broker serves, derived from its routes.

Among the features is Rookery's own: the level of the rules by which the cluster's log is applied.
Of Kafka's those are told that are served.
"""

from __future__ import annotations

import re
from typing import Final

from rookery.broker.call import Call, handles, routes
from rookery.broker.features import features
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.api_versions import (
    API_VERSIONS,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from rookery.wire.messages.produce import PRODUCE

# Names end up in metrics and logs (KIP-511).
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


@handles(API_VERSIONS, versions=range(5), mutates=False, touches=())
def api_versions(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Tell the versions of every API, and remember what the client calls itself."""
    name, version = request.client_software_name, request.client_software_version
    if call.version >= 3:
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "client software names and versions are letters, digits, '.' and '-'",
            )
        session = call.connection.session
        session.software_name, session.software_version = name, version
    known = features(call.state)
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=advertised(call.services.hidden),
        supported_features=[
            SupportedFeatureKey(name=one.name, min_version=one.lowest, max_version=one.highest)
            for one in known
        ],
        finalized_features_epoch=call.state.feature_level,
        finalized_features=[
            FinalizedFeatureKey(
                name=one.name, max_version_level=one.level, min_version_level=one.level
            )
            for one in known
        ],
    )


def advertised(hidden: frozenset[int] = frozenset()) -> list[ApiVersion]:
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
        if key not in hidden
    ]
