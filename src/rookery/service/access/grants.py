"""Serves requests without a review if all that they need is known to be allowed.

Most requests repeat: the same client sends the same API the same names, and may do so. A review
(`guard.py`) costs several times as much as the decisions of the rules themselves.

A plan exists for the APIs that need permissions on each resource that the request names, and whose
answers reveal nothing else. It never denies: a request that it does not cover is reviewed. The
policy remembers each permission until the rules change (`AccessPolicy.grants`).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, Protocol

from rookery.net.session import ClientSession
from rookery.security.access import Access, AccessScope, AclResource, Denial
from rookery.service.access.policy import AccessPolicy, permission_of
from rookery.service.access.redaction import KINDS, changes_answers
from rookery.service.access.requestnames import NamesReader, names_reader
from rookery.wire.message import ZERO_UUID, Api, Message, TopicId


class NamedTopics(Protocol):
    """The names of the topics that exist."""

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with an id."""


class GrantRow(NamedTuple):
    """A row of the table of permissions, prepared for one version of its API."""

    access: Access
    permission: int
    """What it needs, as `AccessPolicy.grants` takes it."""
    names: NamesReader | None
    """Reads the names of the resources; None if only a review can decide by the row."""
    ids: NamesReader | None
    """Reads the ids of the topics; None if there are none."""


class GrantPlan(NamedTuple):
    """The rows of one API in one version."""

    version: int
    rows: tuple[GrantRow, ...]

    def covers(
        self, request: Message, client: ClientSession, policy: AccessPolicy, topics: NamedTopics
    ) -> bool:
        """Return whether a review would find nothing to refuse, as far as this is known."""
        for access, permission, read_names, read_ids in self.rows:
            if read_names is None:
                if access.applies(self.version, request):
                    return False
                continue
            names = read_names(request)
            if read_ids is not None:
                ids = [topic_id for topic_id in read_ids(request) if topic_id != ZERO_UUID]
                names = [*names, *map(topics.name_of, ids)]
                if None in names[len(names) - len(ids) :]:
                    return False
            is_granted = not access.needs_name
            for name in names:
                if name is not None:
                    is_granted = policy.grants(client, permission, name)
                    if not is_granted:
                        break
            # Some conditions take longer to check than the names.
            if not is_granted and access.applies(self.version, request):
                return False
        return True


_Entry = tuple[tuple[Access, ...], GrantPlan | None]
_plans: Final[dict[tuple[int, int], _Entry]] = {}


def plan_of(api: Api[Any, Any], rows: tuple[Access, ...], version: int) -> GrantPlan | None:
    """Return the plan of an API with these rows; None if its requests are always reviewed."""
    entry = _plans.get((api.key, version))
    if entry is None or entry[0] is not rows:
        entry = _plans[api.key, version] = rows, _plan(api, rows, version)
    return entry[1]


def _plan(api: Api[Any, Any], rows: tuple[Access, ...], version: int) -> GrantPlan | None:
    if not rows or changes_answers(api, rows):
        return None
    current = [row for row in rows if row.versions is None or version in row.versions]
    prepared = tuple(_prepare(api, row, version) for row in current)
    if any(row.names is None and row.access.when is None for row in prepared):
        return None
    return GrantPlan(version, prepared)


def _prepare(api: Api[Any, Any], access: Access, version: int) -> GrantRow:
    permission = permission_of(access.operation, access.resource)
    is_named = access.scope is AccessScope.NAMED and access.resource in KINDS
    if not is_named or access.is_for_missing:
        return GrantRow(access, permission, None, None)
    names = names_reader(api.request, version, KINDS[access.resource])
    has_ids = access.resource is AclResource.TOPIC and access.denial is not Denial.REFUSE_REQUEST
    ids = names_reader(api.request, version, TopicId) if has_ids else None
    return GrantRow(access, permission, names or _read_nothing, ids)


def _read_nothing(_request: Message) -> tuple[()]:
    return ()
