"""Enforces access rules at the proxy, for the user who has logged in there.

The decisions are those of a broker with `--authorizer acls`: a request is cut, the denied part is
refused, and lists leave out what the client may not see. What no rule allows is denied.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Hashable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final

from rookery.clock import Clock, SystemClock
from rookery.errors import ConfigError
from rookery.net.session import ClientSession
from rookery.proxy.access.watchedfile import WatchedFile
from rookery.proxy.edits.requesttopics import RequestTopics, UnresolvedTopics
from rookery.proxy.edits.topicchoice import read_text, read_texts
from rookery.proxy.edits.topicnames import TopicNames
from rookery.proxy.filterapi import (
    FORWARD,
    Answer,
    Close,
    Filter,
    FilterContext,
    FilterFunction,
    Forward,
    Verdict,
    if_noted,
)
from rookery.security.acl import AclBinding, find_mistake
from rookery.security.acltext import read_rules
from rookery.service.access.accesstable import access_of
from rookery.service.access.guard import OPEN_APIS, Guard
from rookery.service.access.policy import AccessPolicy, AuthorizerSettings
from rookery.service.access.verdict import AccessVerdict
from rookery.wire.message import Api, Message

log = logging.getLogger(__name__)

_LOOK_MS: Final = 1_000
"""How often the file of rules is looked at."""


class AccessRules(Filter):
    """Refuses what the rules do not allow."""

    OPTIONS: ClassVar[Mapping[str, str]] = {
        "rules_file": "A file with the rules: JSON as `rookery acls list --json` prints it, or "
        "TOML with tables [[rules]].",
        "super_users": "Principals that can do everything, such as User:admin.",
        "allow_everyone_if_no_acl": "Whether resources that no rule covers are open to everyone.",
    }

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(options)
        is_open = self.options.get("allow_everyone_if_no_acl", False)
        if not isinstance(is_open, bool):
            raise ConfigError("allow_everyone_if_no_acl: must be true or false")
        settings = AuthorizerSettings(
            super_users=tuple(read_texts(self.options, "super_users")),
            allow_everyone_if_no_acl=is_open,
        )
        path = Path(read_text(self.options, "rules_file"))
        self._policy = AccessPolicy(RuleFile(path, SystemClock()), settings)
        self._names = TopicNames()

    def functions(self, kind: str, api: Api[Any, Any]) -> list[FilterFunction]:
        """Return the methods for every API that needs a permission."""
        if api.key in OPEN_APIS:
            return []
        return [self.check] if kind == "request" else [self.complete]

    def check(self, context: FilterContext, request: Message) -> Verdict | Awaitable[Verdict]:
        """Forward the part of a request that the rules allow."""
        topics = RequestTopics(self._names)
        try:
            verdict = self._decide(context, request, topics)
        except UnresolvedTopics as unresolved:
            return self._check_later(context, request, topics, unresolved)
        return self._follow(context, request, verdict, topics)

    async def _check_later(
        self,
        context: FilterContext,
        request: Message,
        topics: RequestTopics,
        unresolved: UnresolvedTopics,
    ) -> Verdict:
        await topics.resolve(context, request, is_about_all=unresolved.is_about_all)
        verdict = self._decide(context, request, topics)
        return self._follow(context, request, verdict, topics)

    def _decide(
        self, context: FilterContext, request: Message, topics: RequestTopics
    ) -> AccessVerdict | None:
        guard = Guard(self._policy, topics, creates_topics=True)
        rows = access_of(context.api)
        return guard.check(context.api, rows, context.version, request, self._session(context))

    def _session(self, context: FilterContext) -> ClientSession:
        """Return the client's session; one that has not logged in here is anonymous."""
        if context.session.principal is not None:
            return context.session
        anonymous: ClientSession | None = context.memory.get(self)
        if anonymous is None:
            anonymous = replace(context.session, principal=context.principal)
            context.memory[self] = anonymous
        return anonymous

    def _follow(
        self,
        context: FilterContext,
        request: Message,
        verdict: AccessVerdict | None,
        topics: RequestTopics,
    ) -> Verdict:
        if verdict is None:
            return FORWARD
        if verdict.refused and context.api.is_one_way(request):
            # As Kafka does it: there is no other way to tell the client.
            return Close("a request without a response is denied")
        if verdict.request is None:
            return Answer(verdict.complete(None))
        context.notes[self] = verdict, topics
        return FORWARD if verdict.request is request else Forward(verdict.request)

    @if_noted
    async def complete(self, context: FilterContext, response: Message) -> Verdict:
        """Remove what the client may not see, and add the refusals."""
        verdict, topics = context.notes[self]
        await topics.resolve_ids(context, response)
        return Forward(verdict.complete(response))


class RuleFile:
    """Rules from a file, which is read again when it has changed."""

    def __init__(self, path: Path, clock: Clock) -> None:
        """Read the file.

        Raises:
            ConfigError: it cannot be used.
        """
        self._file = WatchedFile(path, _read)
        self._clock = clock
        self._looked_ms = clock.monotonic_ms()
        self._version = 0
        self._trouble = ""

    def stamp(self) -> Hashable:
        """Return a value that changes with the rules."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._looked_ms >= _LOOK_MS:
            self._looked_ms = now_ms
            try:
                self._version += self._file.look()
                self._trouble = ""
            except ConfigError as error:
                if str(error) != self._trouble:
                    log.warning("access rules: %s", error)
                self._trouble = str(error)
        return self._version

    def rules(self) -> Iterable[AclBinding]:
        """Return all rules."""
        return self._file.value


def _read(path: Path) -> list[AclBinding]:
    try:
        rules = read_rules(path.read_text("utf-8"), is_toml=path.suffix == ".toml")
    except (OSError, UnicodeDecodeError, ConfigError) as error:
        raise ConfigError(f"{path}: {error}", name="rules_file") from error
    for rule in rules:
        # Kafka accepts them, too, so that a list of its rules can have them.
        if mistake := find_mistake(rule):
            log.warning("access rules: %s: %s: %s", path, rule, mistake)
    return rules
