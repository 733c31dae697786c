"""The topics that members of a consumer group subscribe to, by name or regular expression."""

from __future__ import annotations

from collections.abc import Iterable

from rookery.broker.coordination.machine import TopicInfo, TopicLookup
from rookery.broker.groups.consumer.member import GroupMember
from rookery.errors import ApiError
from rookery.service.namepattern import NamePattern


class Subscriptions:
    """The resolved subscriptions of the members, as of the last refresh."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicInfo] = {}
        """The existing topics that members subscribe to, by name."""
        self._matches: dict[str, frozenset[str]] = {}
        """The topics that each regular expression matches."""
        self._regexes: dict[str, NamePattern] = {}
        self._watched: dict[str, TopicInfo | None] | None = None
        """All subscribed topics as of the last refresh, existing or not; None before the first."""
        self._mark: object = None

    def is_current(self, topics: TopicLookup) -> bool:
        """Return whether all relevant topics are unchanged since the last refresh."""
        if self._watched is None or (self._regexes and topics.mark != self._mark):
            return False
        return all(topics.find(name) == known for name, known in self._watched.items())

    def check(self, regex: str, topics: TopicLookup) -> None:
        """Compile and evaluate a regular expression that may be new.

        Raises:
            ApiError: INVALID_REGULAR_EXPRESSION.
        """
        if regex and regex not in self._matches:
            pattern = NamePattern(regex)
            self._matches[regex] = frozenset(pattern.matching(topics.names()))
            self._regexes[regex] = pattern

    def refresh(self, members: Iterable[GroupMember], topics: TopicLookup) -> bool:
        """Resolve the members' subscriptions; return whether the topics changed."""
        members = list(members)
        wanted = {member.regex for member in members if member.regex}
        is_marked, self._mark = topics.mark == self._mark, topics.mark
        self._regexes = {regex: self._compiled(regex) for regex in wanted}
        self._matches = {
            regex: self._matches[regex]
            if is_marked and regex in self._matches
            else self._match(regex, topics)
            for regex in sorted(wanted)
        }
        names = {name for member in members for name in self.names_of(member)}
        self._watched = {name: topics.find(name) for name in sorted(names)}
        found = {name: one for name, one in self._watched.items() if one is not None}
        before, self.topics = self.topics, found
        return self.topics != before

    def names_of(self, member: GroupMember) -> frozenset[str]:
        """Return the names of the topics a member subscribes to, existing or not."""
        return member.names | self._matches.get(member.regex, frozenset())

    def ids_of(self, member: GroupMember) -> frozenset[bytes]:
        """Return the ids of the existing topics a member subscribes to."""
        names = self.names_of(member)
        return frozenset(self.topics[name].id for name in names if name in self.topics)

    def _compiled(self, regex: str) -> NamePattern:
        return self._regexes.get(regex) or NamePattern(regex)

    def _match(self, regex: str, topics: TopicLookup) -> frozenset[str]:
        try:
            return frozenset(self._regexes[regex].matching(topics.names()))
        except ApiError:
            # It was valid for the topics that existed when the member joined. The member keeps its
            # matches, since a heartbeat without a subscription cannot report the error.
            return self._matches.get(regex, frozenset())
