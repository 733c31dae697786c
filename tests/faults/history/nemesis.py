"""Breaks things one at a time, in an order given by a seed, and records each fault."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress
from typing import Final

from tests.faults.history.clients import SESSION_MS
from tests.faults.history.events import History, Op
from tests.faults.history.mortals import Mortal
from tests.faults.history.targets import SESSION_SECONDS, Target
from tests.faults.history.worker import Worker

KILL: Final = "kill"
PAUSE: Final = "pause"
CUT: Final = "cut"
CLIENT: Final = "client"
SLEEPER: Final = "sleeper"
ALL: Final = "all"
RESTART: Final = "restart"
FAULTS: Final = (KILL, PAUSE, CUT, CLIENT)


class Nemesis(Worker):
    """Causes a fault from time to time."""

    def __init__(
        self,
        target: Target,
        mortals: list[Mortal],
        history: History,
        seed: int,
        faults: tuple[str, ...],
        gap: float,
    ) -> None:
        """Prepare.

        Args:
            target: the system to break.
            mortals: the clients that can be killed.
            history: records the faults.
            seed: determines the faults and their times.
            faults: the kinds of faults.
            gap: about how many seconds pass between two faults.
        """
        super().__init__("nemesis", target.bootstrap, history, seed)
        self.count = 0
        self._target = target
        self._mortals = mortals
        self._faults = faults
        self._gap = gap

    def live(self) -> None:
        """Cause and repair faults until it must stop; nothing is broken when it ends."""
        deeds = {
            KILL: self._kill,
            PAUSE: self._pause,
            CUT: self._cut,
            CLIENT: self._kill_client,
            SLEEPER: self._pause_client,
            RESTART: self._restart,
        }
        # The kinds take turns, so that a short run has all of them.
        order = list(self._faults)
        self.chance.shuffle(order)
        while not self.stopping.wait(self._gap * self.chance.uniform(0.5, 1.5)):
            fault = order[self.count % len(order)]
            began = self.history.now()
            what = deeds[fault](self.chance)
            self.history.add(self.name, Op.FAULT, began=began, text=f"{fault} {what}")
            self.count += 1

    def _kill(self, chance: random.Random) -> str:
        return self._target.kill(chance)

    def _restart(self, _chance: random.Random) -> str:
        return self._target.restart()

    def _kill_client(self, chance: random.Random) -> str:
        """Kill one client, some, or all that can be killed, at once."""
        count = chance.choice((1, 3, len(self._mortals)))
        victims = chance.sample(self._mortals, min(count, len(self._mortals)))
        return ", ".join(victim.kill() for victim in victims)

    def _pause_client(self, chance: random.Random) -> str:
        """Pause a client for somewhat longer than its session in the group."""
        seconds = SESSION_MS / 1000 + chance.uniform(0.5, 3.0)
        name = chance.choice(self._mortals).pause(self.stopping, seconds)
        return f"{name} for {seconds:.1f} s"

    def _pause(self, chance: random.Random) -> str:
        """Pause a broker for somewhat longer than its session in the cluster."""
        pids = self._target.pids()
        if not pids:
            return "no process"
        pid = chance.choice(pids)
        seconds = SESSION_SECONDS + chance.uniform(0.5, 3.0)
        try:
            os.kill(pid, signal.SIGSTOP)
            self.stopping.wait(seconds)
        except ProcessLookupError:
            return "no process"
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return f"process {pid} for {seconds:.1f} s"

    def _cut(self, chance: random.Random) -> str:
        """Cut connections at once, or lose answers first."""
        cables = self._target.cables
        index = chance.randrange(len(cables.all))
        if chance.random() < 0.4:
            return f"{cables.cut(index)} connections of cable {index}"
        seconds = chance.uniform(0.1, 4.0)
        cables.deafen(index)
        self.stopping.wait(seconds)
        return f"{cables.mend(index)} connections of cable {index}, deaf for {seconds:.1f} s"
