"""UpdateFeatures: raises the feature level of the whole cluster (KIP-584)."""

from __future__ import annotations

from collections import Counter

from rookery.broker.call import Call, handles
from rookery.broker.decisions import decide
from rookery.broker.features import OWN, features
from rookery.cluster.events.brokerevents import FeatureLevelRaised
from rookery.errors import ApiError, ErrorCode
from rookery.wire.messages.update_features import (
    UPDATE_FEATURES,
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_UPGRADE, _UNSAFE_DOWNGRADE = 1, 3


@handles(UPDATE_FEATURES, versions=range(3), mutates=True)
async def update_features(call: Call, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    """Raise all feature levels in the request, or none."""
    await call.services.replica.barrier()
    counts = Counter(update.feature for update in request.feature_updates)
    try:
        for update in request.feature_updates:
            _check(call, update, counts[update.feature])
    except ApiError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.text)
    own = [
        feature_update.max_version_level
        for feature_update in request.feature_updates
        if feature_update.feature == OWN
    ]
    level = max(own, default=0)
    if level > call.state.feature_level and not request.validate_only:
        [outcome] = await decide(
            call, [FeatureLevelRaised(feature_level=level)], request.timeout_ms
        )
        if outcome.error is not ErrorCode.NONE:
            raise ApiError(outcome.error)
    return UpdateFeaturesResponse(
        error_code=ErrorCode.NONE,
        results=[
            UpdatableFeatureResult(feature=update.feature, error_code=ErrorCode.NONE)
            for update in request.feature_updates
        ],
    )


def _check(call: Call, update: FeatureUpdateKey, times: int) -> None:
    if times > 1 or not _UPGRADE <= update.upgrade_type <= _UNSAFE_DOWNGRADE:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{update.feature}: named twice, or no type of upgrade"
        )
    known = {feature.name: feature for feature in features(call.state)}.get(update.feature)
    if known is None:
        raise _make_refusal(update, "the cluster has no such feature")
    if not known.lowest <= update.max_version_level <= known.highest:
        raise _make_refusal(update, f"the brokers know levels {known.lowest} to {known.highest}")
    if update.max_version_level < known.level:
        raise _make_refusal(update, f"the level is {known.level} and cannot go back")


def _make_refusal(update: FeatureUpdateKey, why: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.max_version_level} for feature {update.feature}: {why}",
    )
