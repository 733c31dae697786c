"""Pins: while one is valid, nothing of its topic is compacted; other topics are."""

from __future__ import annotations

from rookery.cluster.entry import EntryAuthor, read_entry, read_events, write_entry
from rookery.cluster.events.brokerevents import BrokerRegistered, ClusterCreated
from rookery.cluster.events.logevents import (
    BatchesCommitted,
    Extent,
    ReplacedRange,
    RowPiece,
    RowsReplaced,
)
from rookery.cluster.events.pinevents import PinStart, TopicPinned, TopicUnpinned
from rookery.cluster.events.topicevents import TopicCreated
from rookery.cluster.state.images.image import read_image, write_image
from rookery.cluster.state.rules.pinrules import MAX_PIN_MS
from rookery.cluster.state.state import EntryOutcome, State
from rookery.wire.message import Message

TOPIC, PIN = bytes(range(16)), b"p" * 16


class World:
    """A broker that says things, each at a time."""

    def __init__(self) -> None:
        self.state = State()
        self.sequence = 0
        self.say(0, ClusterCreated(cluster_id="c", feature_level=1), is_stranger=True)
        broker = BrokerRegistered(process_id=TOPIC, node_id=1, host="h", port=1)
        self.say(0, broker, is_stranger=True)
        topic = TopicCreated(
            topic_id=TOPIC, name="t", partitions=1, replication_factor=1, configs=[]
        )
        self.say(0, topic)
        extent = Extent(
            topic_id=TOPIC, partition=0, position=0, size=100, records=3, attributes=0,
            max_timestamp=5, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        )  # fmt: skip
        self.say(0, BatchesCommitted(object_id=9 << 24, extents=[extent]))

    def say(self, stamp: int, event: Message, *, is_stranger: bool = False) -> EntryOutcome:
        if not is_stranger:
            self.sequence += 1
        writer = EntryAuthor(
            0 if is_stranger else 2, 0 if is_stranger else self.sequence, stamp, 0, 0
        )
        number = self.state.applied + 1
        entry = read_entry(number, write_entry(writer, [event]))
        return self.state.apply(number, entry, read_events(number, entry))

    def replace(self, stamp: int, cleaned_to: int) -> bool:
        partition = self.state.topics.by_id[TOPIC].partitions[0]
        span = partition.span(0, 3)
        assert span is not None
        replaced = ReplacedRange(
            topic_id=TOPIC, partition=0, base_offset=0, end_offset=3,
            fingerprint=partition.fingerprint(span), kind=6, cleaned_to=cleaned_to,
            pieces=[RowPiece(base_offset=0, position=0, size=90, max_timestamp=5)],
        )  # fmt: skip
        event = RowsReplaced(object_id=(2 << 24) + self.sequence, ranges=[replaced])
        return bool(self.say(stamp, event).outcomes[0].value[0])


def test_compaction_waits_for_a_pin_and_rewriting_does_not() -> None:
    world = World()
    world.say(1000, TopicPinned(topic_id=TOPIC, pin_id=PIN, until_ms=2000))
    assert not world.replace(1500, cleaned_to=3)
    assert world.replace(1500, cleaned_to=-1)
    assert world.replace(2000, cleaned_to=3)  # it has ended by itself


def test_pin_can_be_removed_and_set_again() -> None:
    world = World()
    world.say(1000, TopicPinned(topic_id=TOPIC, pin_id=PIN, until_ms=2000))
    world.say(1900, TopicPinned(topic_id=TOPIC, pin_id=PIN, until_ms=3000))
    assert not world.replace(2500, cleaned_to=3)
    world.say(2500, TopicUnpinned(topic_id=TOPIC, pin_id=PIN))
    assert world.replace(2500, cleaned_to=3)


def test_pin_duration_is_bounded() -> None:
    world = World()
    event = TopicPinned(topic_id=TOPIC, pin_id=PIN, until_ms=1 << 62)
    assert world.say(1000, event).outcomes[0].value == 1000 + MAX_PIN_MS


def test_pin_holds_records_from_its_offset_on() -> None:
    world = World()
    start = PinStart(partition=0, offset=2)
    world.say(1000, TopicPinned(topic_id=TOPIC, pin_id=PIN, until_ms=2000, starts=[start]))
    world.state = read_image(write_image(world.state))
    assert not world.replace(1500, cleaned_to=3)
    # The range goes further, but the rows after the mark are unchanged.
    assert world.replace(1500, cleaned_to=2)
    start = PinStart(partition=0, offset=3)
    world.say(1500, TopicPinned(topic_id=TOPIC, pin_id=PIN, until_ms=2000, starts=[start]))
    assert world.replace(1500, cleaned_to=3)


def test_lowest_of_several_pins_applies() -> None:
    world = World()
    for pin, offset in ((PIN, 3), (b"q" * 16, 1)):
        starts = [PinStart(partition=0, offset=offset)]
        world.say(1000, TopicPinned(topic_id=TOPIC, pin_id=pin, until_ms=2000, starts=starts))
    assert not world.replace(1500, cleaned_to=3)
    world.say(1500, TopicUnpinned(topic_id=TOPIC, pin_id=b"q" * 16))
    assert world.replace(1500, cleaned_to=3)


def test_partitions_without_a_start_are_not_pinned() -> None:
    world = World()
    starts = [PinStart(partition=1, offset=0)]
    world.say(1000, TopicPinned(topic_id=TOPIC, pin_id=PIN, until_ms=2000, starts=starts))
    assert world.replace(1500, cleaned_to=3)


def test_pins_are_stored_in_the_snapshot() -> None:
    world = World()
    world.say(1000, TopicPinned(topic_id=TOPIC, pin_id=PIN, until_ms=2000))
    world.state = read_image(write_image(world.state))
    assert not world.replace(1500, cleaned_to=3)


def test_an_unknown_topic_cannot_be_pinned() -> None:
    event = TopicPinned(topic_id=bytes(16), pin_id=PIN, until_ms=2000)
    assert World().say(1000, event).outcomes[0].error.name == "UNKNOWN_TOPIC_ID"
