"""Stretches in memory are bounded in bytes."""

from __future__ import annotations

from rookery.proxy.virtual.slotindex import Stretch, StretchStart
from rookery.proxy.virtual.stretchcache import StretchCache


def stretch(size: int) -> Stretch:
    made = Stretch(StretchStart(0, -1, (0,), {}))
    made.walked_bytes = size
    return made


def test_stretches_used_last_stay() -> None:
    cache = StretchCache(max_bytes=100)
    for number in range(3):
        cache.add("log", number, stretch(40))
        assert cache.find("log", 0) is not None

    assert [cache.find("log", number) is not None for number in range(3)] == [True, False, True]


def test_one_stretch_stays_whatever_its_size() -> None:
    cache = StretchCache(max_bytes=100)
    cache.add("log", 0, stretch(40))
    cache.add("log", 1, stretch(400))

    assert cache.find("log", 0) is None
    assert cache.find("log", 1) is not None


def test_stretches_of_a_log_that_was_cut_are_dropped() -> None:
    cache, other = StretchCache(max_bytes=100), stretch(30)
    cache.add("other", 5, other)
    for number in range(2):
        cache.add("log", number, stretch(30))

    cache.drop("log", 1)

    assert cache.find("log", 0) is not None
    assert cache.find("log", 1) is None
    assert cache.find("other", 5) is other
    cache.add("log", 1, stretch(40))
    assert cache.find("log", 0) is not None
