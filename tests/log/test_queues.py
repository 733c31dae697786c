"""The eviction order of the block cache."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rookery.log.read.queues import CachedBlock, Key, TwoQueues

KEYS = st.tuples(st.integers(0, 2), st.integers(0, 5))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.integers(0, 40)),
        st.tuples(st.just("use"), KEYS, st.integers(0, 40)),
        st.tuples(st.just("remove"), KEYS, st.just(0)),
        st.tuples(st.just("clear"), KEYS, st.just(0)),
    )
)


@given(STEPS, st.integers(0, 120), st.integers(0, 100))
def test_bytes_are_counted_exactly_and_bounded(
    steps: list[tuple[str, Key, int]], max_bytes: int, percent: int
) -> None:
    queues = TwoQueues(max_bytes, max_bytes * percent // 100, 4)
    newest: dict[Key, bytes] = {}
    for kind, key, size in steps:
        if kind == "put":
            newest[key] = bytes(size)
            queues.put(key, CachedBlock(newest[key]))
        elif kind == "use":
            queues.use(key, size)
        elif kind == "remove":
            queues.remove(key)
            assert key not in queues
        else:
            queues.remove_all(key[0])
            assert not [each for each in newest if each[0] == key[0] and each in queues]
        held = {each: block for each in newest if (block := queues.get(each))}
        assert len(held) == len(queues)
        assert sum(len(block.data) for block in held.values()) == queues.held_bytes <= max_bytes
        assert all(block.data is newest[each] for each, block in held.items())


def test_reading_a_block_once_in_steps_does_not_protect_it() -> None:
    queues = TwoQueues(40, 10, 1)
    queues.put((1, 0), CachedBlock(bytes(10)))
    for _ in range(10):
        queues.use((1, 0), 2)  # each step begins within the last
    for number in range(1, 5):
        queues.put((1, number), CachedBlock(bytes(10)))
    assert (1, 0) not in queues


def test_reading_a_block_more_than_twice_protects_it() -> None:
    queues = TwoQueues(40, 10, 1)
    queues.put((1, 0), CachedBlock(bytes(10)))
    for _ in range(21):
        queues.use((1, 0), 1)
    for number in range(1, 20):
        queues.put((1, number), CachedBlock(bytes(10)))
    assert (1, 0) in queues
    assert queues.evicted == 16


def test_probation_uses_free_capacity() -> None:
    queues = TwoQueues(40, 10, 1)
    for number in range(4):
        queues.put((1, number), CachedBlock(bytes(10)))
    assert len(queues) == 4


def test_oldest_protected_block_is_evicted_when_probation_is_at_its_minimum() -> None:
    queues = TwoQueues(40, 10, 1)
    for number in range(4):
        queues.put((1, number), CachedBlock(bytes(10)))
        queues.use((1, number), 21)
    queues.use((1, 0), 1)
    queues.put((2, 0), CachedBlock(bytes(10)))
    assert [(1, number) in queues for number in range(4)] == [True, False, True, True]
    assert (2, 0) in queues


def test_block_used_last_is_evicted_last_from_probation() -> None:
    queues = TwoQueues(30, 30, 1)
    for number in range(3):
        queues.put((1, number), CachedBlock(bytes(10)))
    queues.use((1, 0), 1)
    queues.put((1, 3), CachedBlock(bytes(10)))
    assert [(1, number) in queues for number in range(4)] == [True, False, True, True]


def test_removed_blocks_are_not_remembered() -> None:
    queues = TwoQueues(20, 0, 4)
    for number in range(3):
        queues.put((number, 0), CachedBlock(bytes(10)))
    queues.remove_all(0)
    queues.put((0, 0), CachedBlock(bytes(10)))
    queues.put((1, 0), CachedBlock(bytes(10)))
    queues.put((3, 0), CachedBlock(bytes(10)))
    assert (1, 0) in queues
    assert (0, 0) not in queues
