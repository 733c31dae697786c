"""A thread that uses clients until it must stop, and reports its errors at once."""

from __future__ import annotations

import random
import sys
from threading import Event, Thread
from traceback import format_exc, format_stack
from typing import Final

from confluent_kafka import KafkaException

from tests.faults.history.events import History, Op

_PATIENCE: Final = 180.0
_AGAIN_SECONDS: Final = 0.2


class Worker:
    """One worker; what it does is in `live`."""

    def __init__(self, name: str, bootstrap: str, history: History, seed: int) -> None:
        """Prepare; `start` begins."""
        self.name = name
        self.bootstrap = bootstrap
        self.history = history
        self.chance = random.Random(f"{seed} {name}")
        self.stopping = Event()
        self.broken = ""
        """The error of its own code, not of the cluster, that ended it."""
        self.transactional_id = name.partition(".")[0]
        """The same for all lives of a worker; after a dot its name has the number of its life."""
        self._thread = Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Ask for the end."""
        self.stopping.set()

    def join(self) -> None:
        """Wait for the end."""
        self._thread.join(_PATIENCE)
        if self._thread.is_alive():
            stack = "".join(format_stack(sys._current_frames().get(self._thread.ident or 0)))
            raise TimeoutError(f"{self.name} does not come to an end:\n{stack}")
        if self.broken:
            raise AssertionError(f"{self.name} ended with {self.broken}")

    def live(self) -> None:
        """Create clients and use them, until they fail or it must stop."""
        raise NotImplementedError

    def _work(self) -> None:
        while not self.stopping.is_set():
            try:
                self.live()
            except (KafkaException, SystemError) as error:
                # librdkafka's callbacks turn the first into the second.
                self.history.add(self.name, Op.RESTART, text=str(error))
                self.stopping.wait(_AGAIN_SECONDS)
            except BaseException:  # noqa: BLE001 (raised when it is joined)
                self.broken = format_exc()
                return
