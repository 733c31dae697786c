"""A kill at one exact point of a Spark program, ordered by a file and carried out in the program.

    harness: order(folder, "jvm")        program, at the point: strike(folder, "batch 3")

The program kills the process that the order names, once.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import sleep
from typing import Final

from tests.spark.processes import JVM, family, kill

VICTIMS: Final = ("driver", "jvm", "self")
_ORDER: Final = "order"
_DONE: Final = "done"
# Java lives a moment longer than its driver, and must not come any further in it.
_LAST_SECONDS: Final = 600.0


def order(folder: Path, victim: str) -> None:
    """Have the program kill one of `VICTIMS` when it comes to the point next."""
    (folder / _DONE).unlink(missing_ok=True)
    (folder / _ORDER).write_text(victim)


def told(folder: Path) -> str:
    """Return where the program was when it struck; empty if it did not."""
    done = folder / _DONE
    return done.read_text() if done.exists() else ""


def strike(folder: Path, where: str) -> None:
    """Carry out the order, if there is one."""
    waiting = folder / _ORDER
    if not waiting.exists():
        return
    victim = waiting.read_text()
    waiting.unlink()
    (folder / _DONE).write_text(where)
    leader = os.getsid(0)
    victims = {"driver": [leader], "jvm": family(leader, JVM), "self": [os.getpid()]}[victim]
    for pid in victims:
        kill(pid)
    if victim == "driver":
        sleep(_LAST_SECONDS)
