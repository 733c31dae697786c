"""Shadow groups have the coordinator of their group."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.proxy.virtual.commits.shadowgroups import is_shadow, offsets_partition, shadow_id


@pytest.mark.parametrize(
    ("group_id", "partition"),
    # By the definition of Java's hash codes, over UTF-16. The third has the lowest possible one.
    [("", 0), ("g", 3), ("polygenelubricants", 0), ("g\u00e4\U0001f426", 6)],
)
def test_groups_are_in_the_partition_that_kafka_chooses(group_id: str, partition: int) -> None:
    assert offsets_partition(group_id, 50) == partition


@given(st.text(max_size=40), st.integers(0, 253), st.integers(1, 200))
def test_shadows_have_the_coordinator_of_their_group(
    group_id: str, slot: int, partitions: int
) -> None:
    shadow = shadow_id(group_id, slot, partitions)

    assert is_shadow(shadow)
    assert group_id in shadow
    assert offsets_partition(shadow, partitions) == offsets_partition(group_id, partitions)
    assert shadow != shadow_id(group_id, (slot + 1) % 254, partitions)
