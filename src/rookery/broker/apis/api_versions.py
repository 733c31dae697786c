"""ApiVersions: the API versions that this broker serves, derived from its routes.

The features include Rookery's own, which is the version of the rules for applying the cluster log.
Of Kafka's features, those that the broker supports are advertised.
"""

from __future__ import annotations

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


@handles(API_VERSIONS, versions=range(5), mutates=False)
def api_versions(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Advertise the versions of every API, and record the client's software name and version."""
    if call.version >= 3 and not call.connection.session.note_software(
        request.client_software_name, request.client_software_version
    ):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "client software names and versions are letters, digits, '.' and '-'",
        )
    known = features(call.state)
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=list_advertised(call.services.hidden),
        supported_features=[
            SupportedFeatureKey(
                name=feature.name, min_version=feature.lowest, max_version=feature.highest
            )
            for feature in known
        ],
        finalized_features_epoch=call.state.feature_level,
        finalized_features=[
            FinalizedFeatureKey(
                name=feature.name, max_version_level=feature.level, min_version_level=feature.level
            )
            for feature in known
        ],
    )


def list_advertised(hidden: frozenset[int] = frozenset()) -> list[ApiVersion]:
    """Return the advertised APIs, including Produce versions that are refused.

    Old librdkafka does not compress if Produce 0 to 2 are missing (KAFKA-18659), so they are
    advertised although the broker refuses them.
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
