"""Deadlines that are postponed repeatedly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rookery.broker.coordination.deadlines import Deadlines

KEYS = st.sampled_from("abcd")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers(0, 50)),
        st.tuples(st.just("cancel"), KEYS, st.just(0)),
        st.tuples(st.just("take"), st.just(""), st.integers(0, 20)),
    ),
    max_size=60,
)


@given(STEPS)
def test_due_deadlines_equal_those_of_a_full_scan(steps: list[tuple[str, str, int]]) -> None:
    deadlines, plain, now = Deadlines[str](), dict[str, int](), 0
    for what, key, ms in steps:
        if what == "set":
            deadlines.set(key, now + ms)
            plain[key] = now + ms
        elif what == "cancel":
            deadlines.cancel(key)
            plain.pop(key, None)
        else:
            now += ms
            due = {name for name, moment in plain.items() if moment <= now}
            assert set(deadlines.take(now)) == due
            plain = {name: moment for name, moment in plain.items() if name not in due}
        nearest = deadlines.next_ms
        assert (nearest is None) == (not plain)
        assert nearest is None or nearest <= min(plain.values())


def test_postponed_deadline_keeps_the_next_wakeup() -> None:
    deadlines = Deadlines[str]()
    deadlines.set("a", 10)

    deadlines.set("a", 25)

    assert deadlines.next_ms == 10
    assert deadlines.take(10) == []
    assert deadlines.next_ms == 25
    assert deadlines.take(25) == ["a"]
    assert deadlines.next_ms is None
