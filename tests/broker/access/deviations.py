"""Differences from Kafka that are not about authorization: where they are, and why."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from rookery.broker.config.configkeys import BROKER_KEYS
from tests.broker.access.outline import ANOTHER_ID
from tests.broker.access.requests import AccessCase
from tests.broker.access.variants import OTHER_GROUP, SHARE_KEY


class Deviation(NamedTuple):
    """Values that differ at one place in the answers of an API."""

    api: str
    versions: range
    place: str
    """A pattern of the whole place in the answer."""
    mine: str | None
    other: str | None
    documented: str
    """The beginning of the row of docs/differences.md that has the reason."""
    variant: str | None = ""
    """The variant of the request (`variants.py`); None for all of them."""

    def explains(self, case: AccessCase, place: str, values: tuple[object, object]) -> bool:
        """Return whether this is the reason for a difference."""
        return (
            self.api == case.api.name
            and self.variant in {case.variant, None}
            and case.version in self.versions
            and re.fullmatch(self.place, place) is not None
            and values == (self.mine, self.other)
        )


_MISSING: Final = "topics/kn-missing/"
_OWN: Final = r"rookery\.validate\.compressed"
_OWN_SETTING: Final = "Compressed batches are opened and checked at produce."
_FEWER: Final = "Brokers and groups have settings of parts"
_LOGGERS: Final = "A broker's loggers have settings."
_VOTERS: Final = "The nodes of the quorum are its controllers"
_NO_SHARES: Final = "There are share groups"
_CREATED: Final = "A missing topic that Metadata creates"
_MARKERS: Final = "DescribeProducers lists a producer"
_NO_MEMBERS: Final = "ConsumerGroupHeartbeat of a member to a group without members"
# A place of a setting of a broker that Rookery does not have. One that it has may not be missing.
_OTHER_BROKER_SETTING: Final = (
    rf"results/4-1/configs/(?!({'|'.join(map(re.escape, BROKER_KEYS))})$)[a-z0-9._-]+"
)
DEVIATIONS: Final = (
    Deviation(
        "CreateTopics", range(5, 8), f"{_MISSING}configs/{_OWN}", "listed", None, _OWN_SETTING,
    ),
    *(
        Deviation(
            "DescribeConfigs", range(1, 5), f"results/{resource}/configs/{_OWN}", "listed", None,
            _OWN_SETTING, variant=None,
        )
        for resource in ("2-known", "4-1")
    ),
    Deviation(
        "DescribeConfigs", range(1, 5), _OTHER_BROKER_SETTING, None, "listed", _FEWER,
        variant=None,
    ),
    *(
        Deviation(
            "DescribeConfigs", range(1, 5), rf"results/32-{group}/configs/{setting}", None,
            "listed", _FEWER, variant=variant,
        )
        for group, variant in (("group-a", None), (OTHER_GROUP, "each type"))
        for setting in (r"(share|streams)\.[a-z.]+", r"consumer\.assignment\.interval\.ms")
    ),
    Deviation(
        "DescribeConfigs", range(1, 5), "results/8-1/error_code", "INVALID_REQUEST", "NONE",
        _LOGGERS,
    ),
    Deviation(
        "DescribeConfigs", range(1, 5), r"results/8-1/configs/[\w.$-]+", None, "listed", _LOGGERS,
    ),
    Deviation(
        "IncrementalAlterConfigs", range(2), "responses/8-1/error_code", "INVALID_REQUEST", "NONE",
        _LOGGERS,
    ),
    # Kafka finds the fault of the request first.
    Deviation(
        "AlterConfigs", range(3), "responses/8-1/error_code", "CLUSTER_AUTHORIZATION_FAILED",
        "INVALID_REQUEST", _LOGGERS,
    ),
    Deviation("ListConfigResources", range(1, 2), "config_resources/8-1", None, "listed", _LOGGERS),
    *(
        Deviation(
            "DescribeQuorum", range(2, 3), f"nodes/0/listeners/{name}", mine, other, _VOTERS,
        )
        for name, mine, other in (
            ("(PLAINTEXT|SASL)", "listed", None), ("CONTROLLER", None, "listed"),
        )
    ),
    # That of WriteTxnMarkers.
    Deviation(
        "DescribeProducers", range(1), "topics/known/partitions/0/active_producers/0", None,
        "listed", _MARKERS,
    ),
    Deviation(
        "FindCoordinator", range(6, 7), f"coordinators/{SHARE_KEY}/error_code", "INVALID_REQUEST",
        "NONE", _NO_SHARES, variant="share",
    ),
    *(
        Deviation("Metadata", range(since, 14), _MISSING + place, mine, other, _CREATED)
        for since, place, mine, other in (
            (0, "error_code", "NONE", "UNKNOWN_TOPIC_OR_PARTITION"),
            (0, "partitions/0", "listed", None),
            (0, "partitions/0/error_code", "NONE", None),
            (10, "topic_id", ANOTHER_ID, "zero"),
        )
    ),
    Deviation(
        "ConsumerGroupHeartbeat", range(2), "error_code", "UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND",
        _NO_MEMBERS,
    ),
)  # fmt: skip
OF_DENIALS: Final = frozenset(
    row for row in DEVIATIONS if (row.mine or "").endswith("AUTHORIZATION_FAILED")
)
"""The rows about clients that are denied something; a super user meets all others."""


def reasons(
    case: AccessCase, differences: Mapping[str, tuple[object, object]]
) -> dict[str, Deviation | None]:
    """Return the row that explains each difference in the answers of a case, or None."""
    return {
        place: next((row for row in DEVIATIONS if row.explains(case, place, values)), None)
        for place, values in differences.items()
    }
