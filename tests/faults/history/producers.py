"""Workers that write: record by record, or in transactions."""

from __future__ import annotations

import os
import random
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.faults.history.clients import cause, producer, transactional
from tests.faults.history.events import History, Op, Place, Source, State
from tests.faults.history.worker import Worker

PAUSE: Final = "ROOKERY_TEST_PAUSE"
"""The variable with the most seconds that a producer of the run pauses."""
_FLUSH_SECONDS: Final = 60.0
_CALL_SECONDS: Final = 5.0
# The number of calls of one kind; together longer than a transaction may last.
_TRIES: Final = 5


def pause_seconds() -> float:
    """Return how long a producer pauses at most between two batches or transactions."""
    return float(os.environ.get(PAUSE, "0.2"))


class LostError(Exception):
    """A producer can no longer be used; another one must replace it."""


class PlainProducer(Worker):
    """Sends record after record to random partitions."""

    def __init__(
        self, name: str, bootstrap: str, history: History, seed: int, places: list[Place]
    ) -> None:
        super().__init__(name, bootstrap, history, seed)
        self._places = places
        self._lives = 0

    def live(self) -> None:
        """Send until it must stop; a producer with a fatal error is replaced."""
        # Under a new name: records in flight of the old one may still arrive, out of order.
        self._lives += 1
        sender = Sender(producer(self.bootstrap), self.history, f"{self.name}.{self._lives}")
        while not self.stopping.is_set():
            for _ in range(self.chance.choice((1, 2, 10, 50))):
                sender.send(self.chance.choice(self._places))
            self.stopping.wait(self.chance.random() * pause_seconds())
            sender.client.poll(0)
            while len(sender.client) > 200 and not self.stopping.is_set():
                sender.client.poll(0.05)
            sender.raise_failure()
        sender.client.flush(_FLUSH_SECONDS)


class TxnProducer(Worker):
    """Writes transactions over several partitions, and aborts some of them."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        history: History,
        seed: int,
        places: list[Place],
        *,
        can_reuse_sequences: bool = True,
    ) -> None:
        """Prepare; see `Sender` for `can_reuse_sequences`."""
        super().__init__(name, bootstrap, history, seed)
        self._places = places
        self._can_reuse_sequences = can_reuse_sequences
        self._again: list[Place] = []
        """The partitions of an aborted transaction: the next one repeats it."""
        self._txn = 0
        self._sent = 0

    def live(self) -> None:
        """Write until it must stop, or the producer has failed for good."""
        client = transactional(self.bootstrap, self.transactional_id)
        initialise(client)
        sender = Sender(
            client,
            self.history,
            self.name,
            self._sent,
            can_reuse_sequences=self._can_reuse_sequences,
        )
        try:
            while not self.stopping.is_set():
                self._transact(sender)
                if self.chance.random() < 0.02:
                    self._be_fenced(sender)
        except LostError:
            self.history.add(self.name, Op.RESTART, text="the producer can do no more")
        finally:
            self._sent = sender.sent

    def _transact(self, sender: Sender) -> None:
        places = self._begin(sender)
        self.stopping.wait(self.chance.random() * pause_seconds())
        if self.chance.random() < 0.7:
            if sender.commit(self._txn):
                return
        else:
            sender.prepare_abort(self.chance)
        sender.abort(self._txn)
        self._again = places

    def _begin(self, sender: Sender) -> list[Place]:
        """Begin a transaction; return the partitions of its records."""
        places, self._again = self._again, []
        if not places:
            places = self.chance.choices(self._places, k=self.chance.randrange(1, 10))
        self._txn += 1
        sender.client.begin_transaction()
        for place in places:
            sender.send(place, txn=self._txn)
        return places

    def _be_fenced(self, sender: Sender) -> None:
        """Begin a transaction, let another producer take the id, and then try to commit."""
        self._begin(sender)
        initialise(transactional(self.bootstrap, self.transactional_id))
        sender.commit(self._txn)
        raise LostError


class Sender:
    """A producer, with a record of its actions."""

    def __init__(
        self,
        client: Producer,
        history: History,
        who: str,
        sent: int = 0,
        *,
        can_reuse_sequences: bool = True,
    ) -> None:
        """Prepare.

        Args:
            client: sends.
            history: receives an event for each record.
            who: the name of the worker in the history.
            sent: the number of records that were sent under this name before.
            can_reuse_sequences: whether the client may continue after it gave records up in an
                abort. librdkafka may then use their sequence numbers again.
        """
        self.client = client
        self.sent = sent
        self._can_reuse_sequences = can_reuse_sequences
        self._history = history
        self._who = who
        self._failure: KafkaError | None = None

    def send(
        self, place: Place, *, txn: int = 0, source: Source | None = None, group: str = ""
    ) -> None:
        """Send a unique record."""
        value = f"{self._who}:{txn}:{self.sent}"
        self.sent += 1
        what = {"txn": txn, "place": place, "value": value}
        began = self._history.add(
            self._who, Op.SEND, State.INVOKED, source=source, group=group, **what
        )

        def delivered(error: KafkaError | None, message: Message) -> None:
            # A retry can be acknowledged without an offset: None.
            offset = message.offset() if error is None else None
            state = State.OK if error is None else State.UNKNOWN
            text = str(error or "")
            self._failure = error or self._failure
            self._history.add(
                self._who,
                Op.SEND,
                state,
                began=began,
                offset=-1 if offset is None else offset,
                text=text,
                **what,
            )

        self.client.produce(place.topic, value, partition=place.partition, on_delivery=delivered)

    def prepare_abort(self, chance: random.Random) -> None:
        """Wait until sent records are stored, so that they can be aborted, or leave them in flight.

        Then it is given up, though brokers may have stored it, and librdkafka may use its sequences
        once more.
        """
        if chance.random() < 0.5:
            self.client.flush(_CALL_SECONDS)

    def raise_failure(self) -> None:
        """Raise the error of a record that was not delivered, if there is any."""
        if self._failure is not None:
            raise KafkaException(self._failure)

    def commit(self, txn: int) -> bool:
        """Commit; return whether it succeeded. If not, the transaction must be aborted.

        Raises:
            LostError: the outcome is unknown, and this producer cannot continue.
        """
        return self._end(Op.COMMIT, txn)

    def abort(self, txn: int) -> None:
        """Abort.

        Raises:
            LostError: this producer can no longer be used, or must not reuse sequences.
        """
        if not self._end(Op.ABORT, txn):
            raise LostError
        if self._failure is not None and not self._can_reuse_sequences:
            raise LostError

    def _end(self, op: Op, txn: int) -> bool:
        began = self._history.add(self._who, op, State.INVOKED, txn=txn)
        call = {
            Op.COMMIT: self.client.commit_transaction,
            Op.ABORT: self.client.abort_transaction,
        }[op]
        text = ""
        for _ in range(_TRIES):
            try:
                call(_CALL_SECONDS)
            except KafkaException as error:
                text = str(error)
                if cause(error).txn_requires_abort():
                    self._history.add(self._who, op, State.FAILED, began=began, txn=txn, text=text)
                    return False
                if not cause(error).retriable():
                    break
            else:
                self._history.add(self._who, op, State.OK, began=began, txn=txn)
                return True
        self._history.add(self._who, op, State.UNKNOWN, began=began, txn=txn, text=text)
        raise LostError


def initialise(client: Producer) -> None:
    """Initialise a producer of transactions, however long it takes.

    Raises:
        KafkaException: it cannot be.
    """
    for attempt in range(_TRIES):
        try:
            client.init_transactions(_CALL_SECONDS)
        except KafkaException as error:
            if not cause(error).retriable() or attempt == _TRIES - 1:
                raise
        else:
            return
