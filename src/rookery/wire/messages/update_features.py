"""UpdateFeatures (key 57): switch the whole cluster to another level of a feature (KIP-584).

Versions:
    1: distinguishes safe from unsafe downgrades, and can check only (KIP-778).
    2: all features are changed or none, so the results of single ones are gone (KIP-1022).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, Message, field, i8, i16, i32


class UpdateFeaturesRequest(Message):
    """The features and their new levels."""

    timeout_ms: i32 = 60000
    feature_updates: list[FeatureUpdateKey]
    validate_only: bool = field(since=1, default=False)  # check, but change nothing


class FeatureUpdateKey(Message):
    """One feature, such as `metadata.version`."""

    feature: str
    max_version_level: i16  # below 1: switch the feature off
    allow_downgrade: bool = field(until=0, default=False)
    # 1 upgrade only, 2 downgrade if nothing is lost, 3 downgrade even so
    upgrade_type: i8 = field(since=1, default=1)


class UpdateFeaturesResponse(Message):
    """Whether the levels were changed."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    error_message: str | None = None
    results: list[UpdatableFeatureResult] = field(until=1, factory=list)


class UpdatableFeatureResult(Message):
    """Whether one feature's level was changed."""

    feature: str
    error_code: ErrorCode
    error_message: str | None = None


def refuse(request: UpdateFeaturesRequest, code: ErrorCode) -> UpdateFeaturesResponse:
    """Answer with the code for all features at once."""
    return UpdateFeaturesResponse(error_code=code, error_message=code.sentence)


UPDATE_FEATURES = Api(
    key=57,
    request=UpdateFeaturesRequest,
    response=UpdateFeaturesResponse,
    versions=range(3),
    flexible=0,
    refuse=refuse,
)
