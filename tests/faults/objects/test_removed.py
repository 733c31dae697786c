"""An object that another program removed: an error names it, and nothing else is affected."""

from __future__ import annotations

import pytest

from rookery.errors import ErrorCode
from rookery.testing.wait import wait_until
from tests.crash.hosts import fsck
from tests.faults.objects.asking import OK, create, fetch, produce, values
from tests.faults.objects.scene import Scene

# Answers of a broker for missing objects.
LOST = {ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR}


@pytest.mark.parametrize("part", ["/objects/", ".kfs"])
def test_object_removed_by_others_is_named(scene: Scene, part: str) -> None:
    is_segment = part == ".kfs"
    hosts = scene.hosts(1, "--caretaker", "process" if is_segment else "off")
    create(hosts.bootstrap, "t", partitions=2)
    sent = [b"%d " % number * 40_000 for number in range(6)]
    for value in sent:
        assert produce(hosts.bootstrap, "t", value).error_code is OK
    # The index of a segment is written before the segment itself.
    place = "/t/0/segment-" if is_segment else ""
    [lost, *_] = wait_until(
        lambda: [key for key in scene.keys(part) if place in key], "an object or a segment"
    )
    assert produce(hosts.bootstrap, "t", b"here", partition=1).error_code is OK
    hosts[0].kill()
    scene.with_store(lambda store: store.delete(lost))
    hosts[0].start()  # with nothing in memory

    answer = fetch(hosts.bootstrap, "t", 0)

    assert answer.error_code in LOST
    assert _short(lost) in hosts[0].words()
    assert "rookery fsck" in hosts[0].words()
    # Other partitions are read, and writes continue.
    assert values(hosts.bootstrap, "t", partition=1) == [b"here"]
    assert produce(hosts.bootstrap, "t", b"more").base_offset == len(sent)
    assert fetch(hosts.bootstrap, "t", 0).error_code in LOST
    faults = fsck(hosts)["faults"]
    assert [(fault["kind"], _short(fault["key"])) for fault in faults] == [
        ("missing", _short(lost))
    ]
    # A reader that continues after the hole succeeds.
    behind = faults[0]["end_offset"]
    assert values(hosts.bootstrap, "t", start=behind) == [*sent, b"more"][behind:]


def _short(key: str) -> str:
    """Return the part of a key that is unique among the objects of a cluster."""
    return "/".join(key.split("/")[-2:])
