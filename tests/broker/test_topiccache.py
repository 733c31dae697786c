"""Values derived from topics: computed once per change, never stale, gone with the topic."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.broker.checks import rules_of
from rookery.broker.config.configs import TopicCache
from rookery.broker.topicdescription import describe
from rookery.cluster.entry import EntryAuthor, read_entry, read_events, write_entry
from rookery.cluster.events.brokerevents import ConfigsChanged, SettingChange
from rookery.cluster.events.importevents import ImportedEpoch, PartitionImported
from rookery.cluster.events.topicevents import PartitionsAdded, TopicCreated, TopicDeleted
from rookery.cluster.resources import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE, resource_key
from rookery.cluster.state.images.image import read_image, write_image
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.wire.message import Message
from tests.cluster.histories import Historian

TOPIC = bytes(range(16))


def created(topic_id: bytes, name: str) -> TopicCreated:
    return TopicCreated(
        topic_id=topic_id, name=name, partitions=2, replication_factor=1, configs=[]
    )


CREATED = created(TOPIC, "t")


class World:
    """A state with one broker, and what is worked out from its topics."""

    def __init__(self) -> None:
        self.historian = Historian(0)
        self.state = State()
        while not self.state.brokers.sequences:
            self.apply(self.historian.entry(self.state))
        self.calls = 0
        self.cache = TopicCache(self._make)

    def _make(self, _state: State, topic: Topic) -> tuple[str, int]:
        self.calls += 1
        return topic.name, self.calls

    def value(self) -> tuple[str, int]:
        return self.cache.of(self.state, self.state.topics.by_id[TOPIC])

    def apply(self, data: bytes) -> None:
        number = self.state.applied + 1
        entry = read_entry(number, data)
        self.state.apply(number, entry, read_events(number, entry))

    def say(self, *events: Message) -> None:
        [(incarnation, sequence), *_] = self.state.brokers.sequences.items()
        self.apply(write_entry(EntryAuthor(incarnation, sequence + 1, 0, 0, 0), list(events)))


def change(resource_type: int, name: str, key: str, value: str | None) -> ConfigsChanged:
    return ConfigsChanged(
        resource_type=resource_type,
        resource_name=resource_key(resource_type, name),
        changes=[SettingChange(name=key, value=value)],
    )


def test_value_is_computed_once_per_change() -> None:
    world = World()
    world.say(CREATED)
    changes = [
        change(TOPIC_RESOURCE, "t", "retention.ms", "1"),
        change(BROKER_RESOURCE, "", "log.retention.ms", "2"),
        PartitionsAdded(topic_id=TOPIC, partitions=3),
    ]
    for number, event in enumerate(changes, 1):
        assert world.value() is world.value()
        assert world.calls == number
        world.say(event)
    assert world.value() == ("t", len(changes) + 1)
    assert len(world.cache) == 1


def test_changes_of_other_topics_and_groups_do_not_invalidate() -> None:
    world = World()
    world.say(CREATED)
    before = world.value()

    world.say(created(bytes(16), "o"))
    world.say(change(TOPIC_RESOURCE, "o", "retention.ms", "1"))
    world.say(change(GROUP_RESOURCE, "g", "consumer.session.timeout.ms", "50000"))

    assert world.value() is before


def test_topic_recreated_with_its_id_is_computed_again() -> None:
    world = World()
    world.say(CREATED)
    before = world.value()
    world.say(TopicDeleted(topic_id=TOPIC))
    world.say(CREATED)
    assert world.value() != before
    assert len(world.cache) == 1


def test_values_of_deleted_topics_are_removed() -> None:
    world = World()
    for number in range(100):
        topic_id = number.to_bytes(16, "big")
        world.say(created(topic_id, f"t{number}"))
        world.cache.of(world.state, world.state.topics.by_id[topic_id])
        world.say(TopicDeleted(topic_id=topic_id))
    assert len(world.cache) < 20


def test_topic_outside_the_state_is_never_cached() -> None:
    world = World()
    topic = Topic(TOPIC, "t", 1)
    assert world.cache.of(world.state, topic) != world.cache.of(world.state, topic)
    assert len(world.cache) == 0


def test_a_state_from_a_snapshot_has_later_versions() -> None:
    world = World()
    world.say(CREATED)
    before = world.value()
    version = world.state.topics.by_id[TOPIC].version

    world.state = read_image(write_image(world.state))

    assert (world.state.topics.by_id[TOPIC].version or 0) > (version or 0)
    assert world.value() != before


def test_versions_are_not_part_of_a_snapshot() -> None:
    world = World()
    world.say(CREATED)
    before = write_image(world.state)
    world.state.topics.touch_all()
    assert write_image(world.state) == before


def test_import_invalidates_the_description_of_a_topic() -> None:
    world = World()
    world.say(CREATED)
    cache = TopicCache(describe)
    topic = world.state.topics.by_id[TOPIC]
    epoch = cache.of(world.state, topic).partitions[0].leader_epoch

    world.say(
        PartitionImported(
            topic_id=TOPIC,
            partition=0,
            log_start=0,
            end_offset=50,
            cleaned_to=0,
            append_time=-1,
            epochs=[ImportedEpoch(epoch=epoch + 5, start_offset=0)],
        )
    )

    assert cache.of(world.state, topic) == describe(world.state, topic)
    assert cache.of(world.state, topic).partitions[0].leader_epoch > epoch + 5


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 120))
def test_values_are_never_stale(seed: int, length: int) -> None:
    world, random = World(), Random(seed)
    world.historian = Historian(seed)
    rules, descriptions = TopicCache(rules_of), TopicCache(describe)
    for _ in range(length):
        step = random.random()
        if step < 0.1:
            world.state = read_image(write_image(world.state))
        elif step < 0.2 and world.state.brokers.sequences:
            value = random.choice((None, "1000", "2000"))
            world.say(change(BROKER_RESOURCE, "", "message.max.bytes", value))
        else:
            world.apply(world.historian.entry(world.state))
        for topic in world.state.topics:
            if random.random() < 0.7:
                assert rules.of(world.state, topic) == rules_of(world.state, topic)
                assert descriptions.of(world.state, topic) == describe(world.state, topic)
