"""After an abort that gave records up, a producer ends if it must not reuse sequences."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import cast

import pytest
from confluent_kafka import KafkaError, Message, Producer

from tests.faults.history.events import History, Place
from tests.faults.history.producers import LostError, Sender

PLACE = Place("topic", 0)
Delivered = Callable[[KafkaError | None, Message | None], None]


class Stub:
    """A client whose records are all under way until its transaction is aborted."""

    def __init__(self) -> None:
        self.under_way: list[Delivered] = []
        self.aborts = 0

    def produce(self, *_: object, on_delivery: Delivered, **__: object) -> None:
        self.under_way.append(on_delivery)

    def commit_transaction(self, _seconds: float) -> None:
        raise AssertionError("nothing is committed here")

    def abort_transaction(self, _seconds: float) -> None:
        for delivered in self.under_way:
            delivered(KafkaError(KafkaError._PURGE_QUEUE), None)
        self.under_way.clear()
        self.aborts += 1


def sender_of(stub: Stub, *, can_reuse_sequences: bool) -> Sender:
    client = cast("Producer", stub)
    return Sender(client, History(StringIO()), "txn-1", can_reuse_sequences=can_reuse_sequences)


def test_abort_that_gave_records_up_ends_the_producer() -> None:
    stub = Stub()
    sender = sender_of(stub, can_reuse_sequences=False)
    sender.send(PLACE, txn=1)
    with pytest.raises(LostError):
        sender.abort(1)
    assert stub.aborts == 1


@pytest.mark.parametrize(("can_reuse_sequences", "count"), [(False, 0), (True, 1)])
def test_other_producers_continue_after_an_abort(*, can_reuse_sequences: bool, count: int) -> None:
    stub = Stub()
    sender = sender_of(stub, can_reuse_sequences=can_reuse_sequences)
    for _ in range(count):
        sender.send(PLACE, txn=1)
    sender.abort(1)
    sender.abort(2)
    assert stub.aborts == 2
