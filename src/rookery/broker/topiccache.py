"""What a broker works out from topics, such as the settings in force: once for each change.

    rules = TopicCache(rules_of)
    rules.of(state, topic)  # cheap: produces ask for every topic, fetches for every partition

A topic has another version whenever something changes that a value may depend on. No two topics
share a version, so it is all that a value is looked up by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic

T = TypeVar("T")

# Values of deleted topics that are kept until somebody looks for them.
_MAX_DELETED: Final = 16


class TopicCache(Generic[T]):
    """One value for each topic, of the topic's present version."""

    __slots__ = ("_make", "_values", "_versions")

    def __init__(self, make: Callable[[State, Topic], T]) -> None:
        """Begin empty.

        Args:
            make: works out a topic's value from what its version stands for.
        """
        self._make = make
        self._values: dict[int | None, T] = {}
        self._versions: dict[bytes, int] = {}

    def __len__(self) -> int:
        """Return how many values are kept."""
        return len(self._values)

    def of(self, state: State, topic: Topic) -> T:
        """Return the value of a topic."""
        value = self._values.get(topic.version)
        return self._renew(state, topic) if value is None else value

    def _renew(self, state: State, topic: Topic) -> T:
        value = self._make(state, topic)
        if topic.version is not None:
            self._values.pop(self._versions.get(topic.id), None)
            self._values[topic.version] = value
            self._versions[topic.id] = topic.version
            if len(self._versions) > len(state.topics.by_id) + _MAX_DELETED:
                self._forget_deleted(state)
        return value

    def _forget_deleted(self, state: State) -> None:
        for topic_id in self._versions.keys() - state.topics.by_id.keys():
            self._values.pop(self._versions.pop(topic_id), None)
