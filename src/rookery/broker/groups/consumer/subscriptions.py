"""The topics that members of a consumer group subscribe to, by name or regular expression.

A regular expression matches only topics that its member may describe. The rules and the topics of
the last heartbeat of any member decide, for all members. A member that has sent none since this
broker coordinates the group keeps to the topics of the persisted group. It learns nothing new by
that: a response is sent only to a member that has just sent a heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rookery.broker.coordination.machine import TopicInfo, TopicLookup, TopicViewer
from rookery.broker.groups.consumer.member import GroupMember
from rookery.errors import ApiError
from rookery.service.namepattern import NamePattern


class RegexViewer(NamedTuple):
    """A regular expression of a client, which may not describe all topics."""

    regex: str
    viewer: TopicViewer | None


class Subscriptions:
    """The resolved subscriptions of the members, as of the last refresh."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicInfo] = {}
        """The existing topics that members subscribe to, by name."""
        self._matches: dict[str, frozenset[str]] = {}
        """The topics that each regular expression matches."""
        self._visible: dict[RegexViewer, frozenset[str]] = {}
        """Those of them that its client may describe."""
        self._views: dict[str, RegexViewer] = {}
        """The regular expression and client of each member that has one, by member id."""
        self._regexes: dict[str, NamePattern] = {}
        self._watched: dict[str, TopicInfo | None] | None = None
        """All subscribed topics as of the last refresh, existing or not; None before the first."""
        self._mark: object = None

    def is_current(self, topics: TopicLookup) -> bool:
        """Return whether all relevant topics are unchanged since the last refresh."""
        if self._watched is None or (self._regexes and topics.mark != self._mark):
            return False
        return all(topics.find(name) == known for name, known in self._watched.items())

    def sees_same(self, member: GroupMember) -> bool:
        """Return whether the last refresh knew the client that now sends a member's requests."""
        known = self._views.get(member.member_id)
        return not member.regex or (known is not None and known.viewer == member.viewer)

    def check(self, regex: str, topics: TopicLookup) -> None:
        """Compile and evaluate a regular expression that may be new.

        Raises:
            ApiError: INVALID_REGULAR_EXPRESSION.
        """
        if regex and regex not in self._matches:
            pattern = NamePattern(regex)
            self._matches[regex] = frozenset(pattern.select(topics.names()))
            self._regexes[regex] = pattern

    def refresh(self, members: Iterable[GroupMember], topics: TopicLookup) -> bool:
        """Resolve the members' subscriptions; return whether their topics changed."""
        members = list(members)
        is_marked, self._mark = topics.mark == self._mark, topics.mark
        views, visible = self._views, self._visible
        wanted = {member.regex for member in members if member.regex}
        self._evaluate(wanted, topics, is_marked=is_marked)
        self._views = {member.member_id: _view(member) for member in members if member.regex}
        self._visible = {
            view: visible[view] if is_marked and view in visible else self._select(view, topics)
            for view in sorted(set(self._views.values()), key=repr)
        }
        names = {name for member in members for name in self.names_of(member)}
        self._watched = {name: topics.find(name) for name in sorted(names)}
        existing = {name: info for name, info in self._watched.items() if info is not None}
        before, self.topics = self.topics, existing
        return self.topics != before or any(
            visible[views[key]] != self._visible[view]
            for key, view in self._views.items()
            if key in views
        )

    def names_of(self, member: GroupMember) -> frozenset[str]:
        """Return the names of the topics a member subscribes to, existing or not."""
        if not member.regex:
            return member.names
        return member.names | self._visible.get(_view(member), frozenset())

    def ids_of(self, member: GroupMember) -> frozenset[bytes]:
        """Return the ids of the existing topics a member subscribes to."""
        names = self.names_of(member)
        return frozenset(self.topics[name].id for name in names if name in self.topics)

    def _evaluate(self, wanted: set[str], topics: TopicLookup, *, is_marked: bool) -> None:
        self._regexes = {regex: self._compile(regex) for regex in wanted}
        self._matches = {
            regex: self._matches[regex]
            if is_marked and regex in self._matches
            else self._match(regex, topics)
            for regex in sorted(wanted)
        }

    def _select(self, view: RegexViewer, topics: TopicLookup) -> frozenset[str]:
        matches = self._matches[view.regex]
        visible = topics.visible(matches, view.viewer)
        return matches & self.topics.keys() if visible is None else visible

    def _compile(self, regex: str) -> NamePattern:
        return self._regexes.get(regex) or NamePattern(regex)

    def _match(self, regex: str, topics: TopicLookup) -> frozenset[str]:
        try:
            return frozenset(self._regexes[regex].select(topics.names()))
        except ApiError:
            # It was valid for the topics that existed when the member joined. The member keeps its
            # matches, since a heartbeat without a subscription cannot report the error.
            return self._matches.get(regex, frozenset())


def _view(member: GroupMember) -> RegexViewer:
    return RegexViewer(member.regex, member.viewer)
