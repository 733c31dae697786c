"""Differences from Kafka that are not about authorization: where they are, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.broker.access.requests import AccessCase

ANYTHING: Final = object()


class Deviation(NamedTuple):
    """A value that differs, in all answers of an API."""

    api: str
    place: str
    """A part of the place in the answer."""
    mine: object
    other: object
    reason: str
    variant: str = ""

    def explains(self, place: str, values: tuple[object, object]) -> bool:
        """Return whether this is the reason for a difference."""
        return self.place in place and all(
            expected is ANYTHING or expected == value
            for expected, value in zip((self.mine, self.other), values, strict=True)
        )


_SETTINGS: Final = "there are fewer settings, and some of our own"
_NO_ELECTION: Final = "leaders are never elected"
_CREATED: Final = "a missing topic is created before the answer, not after it"
DEVIATIONS: Final = (
    Deviation("DescribeConfigs", "/configs/", ANYTHING, ANYTHING, _SETTINGS),
    Deviation("CreateTopics", "/configs/", ANYTHING, ANYTHING, _SETTINGS),
    Deviation(
        "ListConfigResources", "config_resources/", None, "listed",
        "brokers, loggers and groups have no settings of their own",
    ),
    Deviation("DescribeQuorum", "nodes/", "listed", None, "all brokers are listed as voters"),
    Deviation(
        "DescribeProducers", "/active_producers/", None, "listed",
        "producers are those of idempotent batches only",
    ),
    Deviation("ElectLeaders", "results/", None, ANYTHING, _NO_ELECTION, variant="all"),
    Deviation(
        "Fetch", "/error_code", "NONE", "NOT_LEADER_OR_FOLLOWER",
        "there are no followers: a replica fetches as a consumer", variant="as a replica",
    ),
    Deviation(
        "Fetch", "/error_code", "NONE", "UNKNOWN_LEADER_EPOCH",
        "there are no followers: a replica fetches as a consumer", variant="as a replica",
    ),
    Deviation(
        "FindCoordinator", "/error_code", "INVALID_REQUEST", ANYTHING,
        "there are no share groups", variant="share",
    ),
    Deviation("Metadata", "topics/kn-missing", "NONE", "UNKNOWN_TOPIC_OR_PARTITION", _CREATED),
    Deviation("Metadata", "topics/kn-missing/partitions", ANYTHING, None, _CREATED),
    Deviation("Metadata", "topics/kn-missing", None, ANYTHING, _CREATED, variant="all"),
    Deviation(
        "OffsetDelete", "", ANYTHING, ANYTHING,
        "a denied topic is reported before the group is looked up", variant="missing group",
    ),
    Deviation(
        "ConsumerGroupHeartbeat", "error_code", "UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND",
        "the group exists and has no members; the client joins again",
    ),
    Deviation(
        "TxnOffsetCommit", "/error_code", "UNKNOWN_MEMBER_ID", "INVALID_PRODUCER_EPOCH",
        "of two faults, that of the member is reported first",
    ),
)  # fmt: skip


def undocumented(
    case: AccessCase, differences: Mapping[str, tuple[object, object]]
) -> dict[str, tuple[object, object]]:
    """Return the differences in the answers of a case that no row explains."""
    rows = [row for row in DEVIATIONS if (row.api, row.variant) == (case.api.name, case.variant)]
    return {
        place: values
        for place, values in differences.items()
        if not any(row.explains(place, values) for row in rows)
    }
