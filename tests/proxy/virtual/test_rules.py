"""The table of rules: which topics have virtual partitions, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from rookery.errors import ConfigError
from rookery.model.virtual import DEFAULT_OFFSET_RANGE, PartitionLayout
from rookery.proxy.virtual.rules import UntaggedPolicy, VirtualRules

HUNDRED = {"virtual_partitions": 100, "physical_partitions": 10}


def partitions(rules: VirtualRules, name: str) -> int:
    rule = rules.find(name)
    return 0 if rule is None else rule.remapper.virtual_partitions


def test_topics_are_found_by_name_then_by_pattern_then_by_default() -> None:
    rules = VirtualRules(
        {
            **HUNDRED,
            "topics": {
                "metrics.*": {"virtual_partitions": 50, "physical_partitions": 5},
                "metrics.+cpu": {"virtual_partitions": 60, "physical_partitions": 5},
                "metrics-cpu": {"virtual_partitions": 70, "physical_partitions": 5},
            },
        }
    )

    assert partitions(rules, "metrics-cpu") == 70
    assert partitions(rules, "metrics.x.cpu") == 50
    assert partitions(rules, "my-metrics") == 100
    assert partitions(rules, "__consumer_offsets") == 0
    assert rules.max_slots == 14


def test_a_dot_in_a_name_also_is_a_pattern() -> None:
    rules = VirtualRules({"topics": {"a.b": HUNDRED}})

    assert partitions(rules, "a.b") == 100
    assert partitions(rules, "a-b") == 100
    assert partitions(rules, "a.b.c") == 0


def test_topics_inherit_what_they_do_not_say() -> None:
    rules = VirtualRules(
        {
            **HUNDRED,
            "layout": "block",
            "untagged": "slot 0",
            "topics": {"t": {"virtual_partitions": 20, "untagged": "quarantine"}},
        }
    )
    rule, default = rules.find("t"), rules.find("other")

    assert rule is not None
    assert default is not None
    assert rule.remapper.physical_partitions == 10
    assert rule.remapper.offset_range == DEFAULT_OFFSET_RANGE
    assert rule.remapper.layout is PartitionLayout.BLOCK
    assert (rule.untagged, default.untagged) == (UntaggedPolicy.QUARANTINE, UntaggedPolicy.SLOT_0)
    assert (rule.is_default, default.is_default) == (False, True)


def test_without_rules_no_topic_is_virtual() -> None:
    assert not VirtualRules({})
    assert partitions(VirtualRules({}), "t") == 0


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({**HUNDRED, "partitions": 3}, "virtual.partitions"),
        ({"topics": {"t": {**HUNDRED, "ofset_range": 3}}}, 'virtual.topics."t".ofset_range'),
        ({"virtual_partitions": 10}, "virtual.physical_partitions"),
        ({"layout": "modulo"}, "virtual.virtual_partitions"),
        ({"topics": {"t": {"virtual_partitions": 4}}}, "physical_partitions"),
        ({**HUNDRED, "offset_range": 5}, "offset_range"),
        ({**HUNDRED, "offset_range": True}, "offset_range"),
        ({**HUNDRED, "virtual_partitions": 101}, "multiple of physical_partitions"),
        ({**HUNDRED, "layout": "stripes"}, "modulo, block"),
        ({**HUNDRED, "untagged": 0}, "virtual.untagged"),
        ({"topics": {"t(": HUNDRED}}, 'virtual.topics."t\\("'),
        ({"topics": ["t"]}, "virtual.topics"),
        ({"topics": {"t": 3}}, 'virtual.topics."t"'),
    ],
)
def test_mistakes_are_named(table: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        VirtualRules(table)
