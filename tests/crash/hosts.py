"""Faults of brokers on several hosts, and checks of the data that remains."""

from __future__ import annotations

import json
import operator
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from rookery.store.probe import PROBES
from rookery.testing.brokers import Hosts
from rookery.testing.wait import wait_until
from tests.crash.killing import Blow

# Two looks for orphans, two delays, a snapshot between them, and a busy machine.
GRACE: Final = 180.0


def kill_host(hosts: Hosts, chance: random.Random) -> str:
    """Kill a broker and its caretaker, then start it again: a host that lost its power."""
    index = chance.randrange(len(hosts))
    hosts[index].kill()
    hosts[index].start()
    return f"host {index + 1}"


def kill_broker(hosts: Hosts, chance: random.Random) -> str:
    """Kill a broker alone: its caretaker has to notice, while another may be at work already."""
    index = chance.randrange(len(hosts))
    hosts[index].kill_broker()
    hosts[index].start()
    return f"broker {index + 1}"


def kill_caretaker(hosts: Hosts, chance: random.Random) -> str:
    """Kill a caretaker at any moment; its broker starts another."""
    victims = hosts.caretaker_pids()
    if not victims:
        return "nobody"
    victim = chance.choice(victims)
    with suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    return f"caretaker {victim}"


def kill_all_hosts(hosts: Hosts, _chance: random.Random) -> str:
    """Kill everything, then start it again."""
    hosts.kill()
    hosts.start()
    return "all hosts"


BLOWS: Final[Sequence[Blow[Hosts]]] = (
    *(kill_host, kill_host, kill_broker, kill_broker),
    *(kill_caretaker, kill_caretaker, kill_caretaker, kill_all_hosts),
)


def fsck(hosts: Hosts) -> dict[str, Any]:
    """Return what `rookery fsck` finds, also while brokers work."""
    command = [sys.executable, "-m", "rookery.cli.main", "fsck", "--json", "--quiet"]
    command += ["--store", hosts.store]
    command += ["--cluster", hosts.cluster] if hosts.cluster else []
    done = subprocess.run(command, capture_output=True, timeout=600, check=False)
    if done.returncode not in {0, 1} or not done.stdout:
        raise AssertionError(f"fsck ended with {done.returncode}: {done.stderr.decode()[-2000:]}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def wait_until_clean(hosts: Hosts, report: Callable[[str], None] = print) -> None:
    """Check that nothing is wrong, and that unneeded objects are deleted in time."""
    began = monotonic()

    def leftovers() -> list[dict[str, Any]]:
        faults: list[dict[str, Any]] = fsck(hosts)["faults"]
        lasting = [fault for fault in faults if not _is_leftover(fault)]
        assert not lasting, lasting[:5]
        return faults

    wait_until(leftovers, "no orphans", accepts=operator.not_, seconds=GRACE, pause=0.5)
    report(f"fsck is clean after {monotonic() - began:.1f} s")


def _is_leftover(fault: dict[str, Any]) -> bool:
    """Return whether it is the remains of a killed process; anything else is damage."""
    return bool(fault["kind"] == "orphaned" or fault["key"].startswith(PROBES))
