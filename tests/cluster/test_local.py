"""The lock and the bells between processes of one host."""

from __future__ import annotations

from pathlib import Path

from rookery.cluster.local.peers import Bell, Ringer, Turnstile
from tests.cluster.processes import child


def test_turnstile_admits_waiting_processes_first(tmp_path: Path) -> None:
    overtaken = []
    with child("grab", tmp_path) as greedy:
        assert greedy.stdout is not None
        greedy.stdout.readline()
        patient = Turnstile(tmp_path)
        for _ in range(100):
            before = last = patient.arrivals()
            while before == last:  # Until the other one has just got it.
                before = patient.arrivals()
            with patient:
                overtaken.append(patient.arrivals() - before)
        patient.close()
    # With a plain flock the greedy one gets in many times before the other is awake.
    assert sorted(overtaken)[90] <= 3


def test_every_instance_sees_arrivals(tmp_path: Path) -> None:
    first, second = Turnstile(tmp_path), Turnstile(tmp_path)
    for expected in range(3):
        assert second.arrivals() == expected
        first.count_arrival()
    for turnstile in (first, second):
        turnstile.close()


def test_full_bell_does_not_block_other_bells(tmp_path: Path) -> None:
    deaf, heard = Bell(tmp_path), Bell(tmp_path)
    ringer = Ringer(tmp_path, "")
    ringer.look_around()
    for number in range(1, 2000):
        ringer.ring(number)
        assert heard.answer() == (number, 1)
    # The full one shows that there was more than it could take.
    _, rings = deaf.answer()
    assert rings > 1
    for part in (deaf, heard, ringer):
        part.close()


def test_several_rings_are_answered_together(tmp_path: Path) -> None:
    bell, ringer = Bell(tmp_path), Ringer(tmp_path, "")
    assert bell.answer() == (0, 0)
    ringer.look_around()
    for number in (7, 9, 8):
        ringer.ring(number)
    assert bell.answer() == (9, 3)
    for part in (bell, ringer):
        part.close()


def test_handle_does_not_ring_its_own_bell(tmp_path: Path) -> None:
    bell = Bell(tmp_path)
    ringer = Ringer(tmp_path, bell.name)
    ringer.look_around()
    ringer.ring(1)
    assert bell.answer() == (0, 0)
    for part in (bell, ringer):
        part.close()
