"""Workers that read as members of groups: some only read, others copy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.crash.bounded import within
from tests.faults.history.clients import cause, member, transactional
from tests.faults.history.events import COMMITTED, History, Op, Place, Source, State
from tests.faults.history.producers import LostError, Sender, initialise
from tests.faults.history.worker import Worker

_POLL_SECONDS: Final = 0.2
_CALL_SECONDS: Final = 5.0
# Together longer than a transaction may last.
_TRIES: Final = 5
# The time after which a reader leaves its group, and joins again.
_STAY_SECONDS: Final = (6.0, 30.0)

# Errors that a member may get while it joins, or while brokers come back.
_NEEDS_NEW_CONSUMER: Final = frozenset({KafkaError._FATAL, KafkaError._MAX_POLL_EXCEEDED})


class Membership:
    """A consumer in a group, and its partitions."""

    def __init__(self, worker: Worker, group: str, consumer: Consumer, topics: list[str]) -> None:
        self.group = group
        self.consumer = consumer
        self.next: dict[Place, int] = {}
        """The offset after the last record that was read, of the partitions it has."""
        self._polled: dict[Place, list[Message]] = defaultdict(list)
        self._worker = worker
        consumer.subscribe(
            topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )

    def read(self, most: int) -> dict[Place, list[Message]]:
        """Return records that came, by partition.

        Raises:
            KafkaException: the consumer can do no more.
        """
        polled: dict[Place, list[Message]] = defaultdict(list)
        self._polled = polled
        for attempt in range(most):
            # One at a time, so that no record is left of a partition that is revoked meanwhile.
            message = self.consumer.poll(0.0 if attempt else _POLL_SECONDS)
            if message is None:
                break
            error = message.error()
            if error is None:
                place = Place(message.topic() or "", message.partition() or 0)
                polled[place].append(message)
                self.next[place] = (message.offset() or 0) + 1
            elif error.fatal() or error.code() in _NEEDS_NEW_CONSUMER:
                raise KafkaException(error)
        return polled

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note(Op.ASSIGNED, partitions)

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note(Op.REVOKED, partitions)

    def _note(self, op: Op, partitions: list[TopicPartition]) -> None:
        places = {Place(partition.topic, partition.partition): -1 for partition in partitions}
        for place in places:
            self.next.pop(place, None)
            # No reader has seen it yet; the next one will read it.
            self._polled.pop(place, None)
        self._worker.history.add(self._worker.name, op, group=self.group, offsets=places)


class Reader(Worker):
    """Reads, records what it read, and commits its offsets."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        history: History,
        seed: int,
        group: tuple[str, str, str],
        topics: list[str],
    ) -> None:
        """Prepare; a group is its name, its protocol and its assignment strategy."""
        super().__init__(name, bootstrap, history, seed)
        self._group = group
        self._topics = topics
        self.stays = False
        """Whether it no longer leaves its group."""

    def live(self) -> None:
        """Read until it must stop, or leaves its group for a moment."""
        consumer = member(self.bootstrap, *self._group)
        leaves = monotonic() + self.chance.uniform(*_STAY_SECONDS)
        try:
            membership = Membership(self, self._group[0], consumer, self._topics)
            while not self.stopping.is_set() and (self.stays or monotonic() < leaves):
                self._read(membership)
                if self.chance.random() < 0.3:
                    self._commit(membership)
        finally:
            consumer.close()

    def _read(self, membership: Membership) -> None:
        for place, messages in membership.read(100).items():
            self.history.add(
                self.name,
                Op.READ,
                group=membership.group,
                place=place,
                isolation=COMMITTED,
                records=tuple(
                    (message.offset(), (message.value() or b"").decode()) for message in messages
                ),
            )

    def _commit(self, membership: Membership) -> None:
        offsets = dict(membership.next)
        if not offsets:
            return
        what = {"group": membership.group, "offsets": offsets}
        began = self.history.add(self.name, Op.OFFSETS, State.INVOKED, **what)
        error = _commit(membership.consumer, offsets)
        if error is None:
            state = State.OK
        else:
            state = State.FAILED if error.code() in _REFUSED else State.UNKNOWN
        text = str(error or "")
        self.history.add(self.name, Op.OFFSETS, state, began=began, text=text, **what)


def _commit(consumer: Consumer, offsets: dict[Place, int]) -> KafkaError | None:
    """Commit offsets; return the first error."""
    wanted = [TopicPartition(*place, offset) for place, offset in offsets.items()]
    try:
        done = consumer.commit(offsets=wanted, asynchronous=False) or []
    except KafkaException as error:
        return cause(error)
    return next((partition.error for partition in done if partition.error), None)


# With these errors a coordinator reports that it has not committed.
_REFUSED: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
    }
)


class Copier(Worker):
    """Consumes, transforms and produces: a copy of every record, exactly once."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        history: History,
        seed: int,
        group: tuple[str, str, str],
        topics: tuple[str, str],
        *,
        can_reuse_sequences: bool = True,
    ) -> None:
        """Prepare; `topics` are its source and its target; see `Sender` for the last argument."""
        super().__init__(name, bootstrap, history, seed)
        self._group = group
        self._topics = topics
        self._can_reuse_sequences = can_reuse_sequences
        self._txn = 0
        self._sent = 0

    def live(self) -> None:
        """Copy until it must stop, or a client has failed."""
        client = transactional(self.bootstrap, self.transactional_id)
        initialise(client)
        sender = Sender(
            client,
            self.history,
            self.name,
            self._sent,
            can_reuse_sequences=self._can_reuse_sequences,
        )
        consumer = member(self.bootstrap, *self._group)
        try:
            membership = Membership(self, self._group[0], consumer, [self._topics[0]])
            while not self.stopping.is_set():
                if batch := membership.read(self.chance.choice((1, 5, 50))):
                    self._copy(membership, sender, batch)
        except LostError:
            self.history.add(self.name, Op.RESTART, text="the producer can do no more")
        finally:
            self._sent = sender.sent
            consumer.close()

    def _copy(
        self, membership: Membership, sender: Sender, batch: dict[Place, list[Message]]
    ) -> None:
        self._txn += 1
        sender.client.begin_transaction()
        for place, messages in batch.items():
            for message in messages:
                source = Source(*place, message.offset() or 0)
                target = Place(self._topics[1], place.partition)
                sender.send(target, txn=self._txn, source=source, group=membership.group)
        if self._add_offsets(membership, sender, batch):
            if self.chance.random() < 0.9:
                if sender.commit(self._txn):
                    return
            else:
                sender.prepare_abort(self.chance)
        sender.abort(self._txn)
        for place, messages in batch.items():
            membership.consumer.seek(TopicPartition(*place, messages[0].offset() or 0))

    def _add_offsets(
        self, membership: Membership, sender: Sender, batch: dict[Place, list[Message]]
    ) -> bool:
        """Add the offsets to the transaction; return whether it succeeded.

        Raises:
            LostError: this producer can do no more.
        """
        offsets = [
            TopicPartition(*place, (messages[-1].offset() or 0) + 1)
            for place, messages in batch.items()
        ]
        what = {"txn": self._txn, "group": membership.group}
        what["offsets"] = {
            Place(offset.topic, offset.partition): offset.offset for offset in offsets
        }
        began = self.history.add(self.name, Op.TXN_OFFSETS, State.INVOKED, **what)
        error = self._send_offsets(membership.consumer, sender, offsets)
        state = State.OK if error is None else State.UNKNOWN
        text = str(error or "")
        self.history.add(self.name, Op.TXN_OFFSETS, state, began=began, text=text, **what)
        if error is not None and not error.txn_requires_abort():
            raise LostError
        return error is None

    def _send_offsets(
        self, consumer: Consumer, sender: Sender, offsets: list[TopicPartition]
    ) -> KafkaError | None:
        """Retry while a retry can succeed; return the last error."""
        error: KafkaError | None = None
        for _ in range(_TRIES):
            metadata = consumer.consumer_group_metadata()
            send = partial(
                sender.client.send_offsets_to_transaction, offsets, metadata, _CALL_SECONDS
            )
            error = _error_of(send)
            if error is None or error.txn_requires_abort() or not error.retriable():
                break
        return error


def _error_of(call: Callable[[], object]) -> KafkaError | None:
    """Return the error of a call; a call that never returns is abandoned.

    librdkafka waits forever for a group's coordinator that was away from the cluster for a while.
    """
    try:
        within(call, "send_offsets_to_transaction", 3 * _CALL_SECONDS)
    except KafkaException as error:
        return cause(error)
    except TimeoutError as error:
        return KafkaError(KafkaError._STATE, str(error))
    return None
