"""A topic that is deleted and created again never returns data of the old one."""

from __future__ import annotations

import pytest

from rookery.testing.backends import ETCD, STORE
from rookery.testing.wait import wait_until
from tests.crash.hosts import wait_until_clean
from tests.faults.objects.asking import OK, create, delete, produce, values
from tests.faults.objects.scene import Scene


def _fill(bootstrap: str, word: bytes, count: int = 30) -> list[bytes]:
    """Write enough for a segment; return what was written."""
    sent = [b"%s %d " % (word, number) * 2_000 for number in range(count)]
    for value in sent:
        assert produce(bootstrap, "t", value).error_code is OK
    return sent


@pytest.mark.parametrize("kind", [ETCD, STORE])
def test_recreated_topic_is_empty(scene: Scene) -> None:
    # Peer: the old records were there again, and offsets continued.
    hosts = scene.hosts(1)
    create(hosts.bootstrap, "t")
    old = _fill(hosts.bootstrap, b"old")
    wait_until(lambda: scene.keys("/t/0/segment-"), "a segment")
    old_keys = set(scene.keys("/t/0/segment-"))
    assert values(hosts.bootstrap, "t") == old

    delete(hosts.bootstrap, "t")
    create(hosts.bootstrap, "t")

    assert values(hosts.bootstrap, "t") == []
    assert produce(hosts.bootstrap, "t", b"new").base_offset == 0
    assert values(hosts.bootstrap, "t") == [b"new"]
    new = [b"new", *_fill(hosts.bootstrap, b"new")]

    def has_new_segment() -> bool:
        return any(key.endswith(".kfs") for key in set(scene.keys("/t/0/segment-")) - old_keys)

    wait_until(has_new_segment, "a segment of the new topic under another key")
    # Those of the old one go.
    wait_until(lambda: not old_keys & set(scene.keys("/t/0/segment-")), "the old segments' end")
    hosts[0].kill()
    hosts[0].start()  # with nothing in memory
    assert values(hosts.bootstrap, "t") == new
    wait_until_clean(hosts)
