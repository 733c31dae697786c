"""Decides between decoding and handling which part of a request is served.

    verdict = guard.check(route.api, route.touches, header.api_version, request, session)

The rows that a route states (`security/access.py`) are all that decides; no handler checks
permissions. Topics that are named by id are looked up first. An unknown id is refused here, so that
a handler that waits for newer topics does not serve one that no rule allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from rookery.errors import ErrorCode
from rookery.net.session import ClientSession
from rookery.security.access import Access, AccessScope, AclResource, Denial, Operation
from rookery.security.acl import CLUSTER_NAME
from rookery.service.access.disclosure import (
    has_lost_cursor,
    name_visible_topics,
    report_missing,
    restore_names,
    serve_brokers,
    serve_group,
    serve_page,
    shorten,
)
from rookery.service.access.fetchaccess import FetchAccess
from rookery.service.access.grants import plan_of
from rookery.service.access.policy import AccessClient, AccessPolicy
from rookery.service.access.redaction import KINDS, answer_changes
from rookery.service.access.requestnames import names_in
from rookery.service.access.tokenaccess import can_use_token_apis, deny_creation
from rookery.service.access.verdict import AccessVerdict
from rookery.wire.codec import API_VERSIONS_KEY
from rookery.wire.message import ZERO_UUID, Api, Message, TopicId, TopicName
from rookery.wire.messages.expire_delegation_token import EXPIRE_DELEGATION_TOKEN
from rookery.wire.messages.fetch import FETCH
from rookery.wire.messages.get_telemetry_subscriptions import GET_TELEMETRY_SUBSCRIPTIONS
from rookery.wire.messages.push_telemetry import PUSH_TELEMETRY
from rookery.wire.messages.renew_delegation_token import RENEW_DELEGATION_TOKEN
from rookery.wire.messages.sasl_authenticate import SASL_AUTHENTICATE
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE
from rookery.wire.partition import cut

OPEN_APIS: Final = frozenset(
    {
        API_VERSIONS_KEY,
        SASL_HANDSHAKE.key,
        SASL_AUTHENTICATE.key,
        GET_TELEMETRY_SUBSCRIPTIONS.key,
        PUSH_TELEMETRY.key,
        RENEW_DELEGATION_TOKEN.key,
        EXPIRE_DELEGATION_TOKEN.key,
    }
)
"""The APIs that need no permission; a token itself states which users may change it. Others without
a row are refused to all but super users."""

CODES: Final = {
    AclResource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The error code of a denial, by the type of the resource."""

# Types of resources with settings (in config APIs) that are not settings of the cluster.
_OWN_SETTINGS: Final = frozenset({2, 32})

_Codes = Callable[..., ErrorCode | None]
"""Returns why an item of a request is refused; None if it is not."""


class TopicDirectory(Protocol):
    """The topics that exist."""

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with an id."""

    def id_of(self, name: str) -> bytes | None:
        """Return the id of the topic with a name."""

    def names(self) -> list[str]:
        """Return the names of all topics."""

    def partitions_of(self, name: str) -> int:
        """Return the number of partitions of a topic; 0 if it does not exist."""


class Guard:
    """Applies the access rules to requests."""

    def __init__(
        self, policy: AccessPolicy, topics: TopicDirectory, *, creates_topics: bool
    ) -> None:
        """Create a guard.

        Args:
            policy: the rules.
            topics: looks up topics.
            creates_topics: whether a request that names a missing topic may create it.
        """
        self.policy = policy
        self._topics = topics
        self._creates_topics = creates_topics
        self._fetches = FetchAccess(policy)

    def check(
        self,
        api: Api[Any, Any],
        rows: tuple[Access, ...],
        version: int,
        request: Message,
        session: ClientSession,
    ) -> AccessVerdict | None:
        """Return what to serve; None if the request and its answer are served as they are."""
        if session.principal in self.policy.super_users or api.key in OPEN_APIS:
            return None
        self.policy.refresh()
        plan = plan_of(api, rows, version)
        if plan is not None and plan.covers(request, session, self.policy, self._topics):
            return self._serve_whole(api, request, session)
        return self._review(api, rows, version, request, session)

    def _review(
        self,
        api: Api[Any, Any],
        rows: tuple[Access, ...],
        version: int,
        request: Message,
        session: ClientSession,
    ) -> AccessVerdict | None:
        client = self.policy.client(session)
        review = Review(client, self._topics, api, version, request)
        if not rows:
            review.refuse_unlisted()
        for row in rows:
            if not self._is_relevant(row, session):
                continue
            if review.verdict.request is None:
                break
            if row.applies(version, review.verdict.request):
                review.apply(row)
        if not self.policy.settings.is_enforced:
            # The review has noted what it would have refused.
            return None
        verdict = review.verdict
        serve_brokers(verdict, request)
        serve_group(verdict, request)
        serve_page(verdict)
        if api is FETCH:
            self._fetches.check(verdict, request, session)
        if verdict.request is not None:
            verdict.changes += answer_changes(api, rows, client, self._topics.name_of)
        return None if verdict.is_plain else verdict

    def _serve_whole(
        self, api: Api[Any, Any], request: Message, session: ClientSession
    ) -> AccessVerdict | None:
        """Return the verdict on a request of which nothing is refused."""
        if api is not FETCH or not self.policy.settings.is_enforced:
            return None
        verdict = AccessVerdict(api, request)
        self._fetches.check(verdict, request, session)
        return None if verdict.is_plain else verdict

    def binds(self, api_key: int, session: ClientSession) -> bool:
        """Return whether the rules can refuse a client's requests of an API."""
        is_super_user = session.principal in self.policy.super_users
        return self.policy.settings.is_enforced and not is_super_user and api_key not in OPEN_APIS

    def _is_relevant(self, row: Access, session: ClientSession) -> bool:
        if row.is_for_missing:
            return self._creates_topics
        # Other clients' requests for tokens are refused by the handler, whatever the rules are.
        return row.resource is not AclResource.USER or can_use_token_apis(session)


class Review:
    """Applies the rows of an API to one request."""

    def __init__(
        self,
        client: AccessClient,
        topics: TopicDirectory,
        api: Api[Any, Any],
        version: int,
        request: Message,
    ) -> None:
        self._client = client
        self._topics = topics
        self._api = api
        self._version = version
        if has_lost_cursor(request):
            self.verdict = AccessVerdict(api, request)
            self._refuse_all(ErrorCode.INVALID_REQUEST)
            return
        named = name_visible_topics(api, request, client, topics.names)
        self.verdict = AccessVerdict(api, request if named is None else named)
        if named is not None and not named.topics:
            self.verdict.refuse(api.refuse(named, ErrorCode.NONE))

    def refuse_unlisted(self) -> None:
        """Refuse a request for which no row is stated."""
        self._client.note_denial(Operation.CLUSTER_ACTION, AclResource.CLUSTER)
        self._refuse_all(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def apply(self, row: Access) -> None:
        """Refuse what a row denies."""
        if row.denial is Denial.REDACT or row.scope is AccessScope.LISTED:
            return
        if self._client.has_on_cluster(row.or_on_cluster):
            return
        if row.scope is AccessScope.WHOLE:
            self._check_cluster(row)
        elif row.scope is AccessScope.ANY:
            self._check_any(row)
        elif row.resource is AclResource.CLUSTER:
            self._check_settings(row)
        elif row.resource is AclResource.TOPIC:
            self._check_topics(row)
        elif row.resource is AclResource.USER:
            self._check_owner(row)
        else:
            self._check_names(row)

    def _check_cluster(self, row: Access) -> None:
        if self._client.may(row.operation, AclResource.CLUSTER, CLUSTER_NAME):
            return
        if row.denial is Denial.REFUSE:
            # Kafka's answer to a client that fetches as a replica.
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            self.verdict.refuse(self._api.refuse_items(self.verdict.request, code))
        else:
            self._refuse_all(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def _check_any(self, row: Access) -> None:
        if self._client.has_any(row.operation, row.resource):
            return
        self._client.note_denial(row.or_on_cluster or row.operation, AclResource.CLUSTER)
        self._refuse_all(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def _check_settings(self, row: Access) -> None:
        """Check the settings of brokers and the like, which belong to the cluster."""

        def is_kept(resource: Any) -> bool:
            return resource.resource_type in _OWN_SETTINGS

        request: Any = self.verdict.request
        if all(map(is_kept, request.resources)):
            return
        if self._client.may(row.operation, AclResource.CLUSTER, CLUSTER_NAME):
            return
        halves = cut(self._api, self._version, request, is_kept)
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        self.verdict.cut(halves, self._api.refuse(halves.denied, code))

    def _check_names(self, row: Access) -> None:
        """Check groups or transactional ids."""
        kind, code = KINDS[row.resource], CODES[row.resource]
        names = set(names_in(self._request, self._version, kind))
        if row.needs_name and not names:
            self._client.note_denial(row.operation, row.resource, "")
            self._refuse_all(code)
            return
        denied = {name for name in names if not self._client.may(row.operation, row.resource, name)}
        if not denied:
            return
        try:
            halves = cut(
                self._api, self._version, self._request, lambda name: name not in denied, kind
            )
        except TypeError:
            # The request has no list of them, so that it is refused as a whole.
            self._refuse_all(code)
            return
        refusal = self._api.refuse(halves.denied, code)
        shorten(self._api, self._version, refusal)
        self.verdict.cut(halves, refusal)

    def _check_owner(self, row: Access) -> None:
        """Check the user that a delegation token is for."""
        refusal = deny_creation(self._client, row, self._request)
        if refusal is not None:
            self.verdict.refuse(refusal)

    def _check_topics(self, row: Access) -> None:
        names = set(names_in(self._request, self._version, TopicName)) - {""}
        is_whole = row.denial is Denial.REFUSE_REQUEST
        ids = set() if is_whole else set(names_in(self._request, self._version, TopicId))
        codes = {name: self._code_of_name(name, row) for name in names}
        codes |= {topic_id: self._code_of_id(topic_id, row) for topic_id in ids - {ZERO_UUID}}
        refusals = {code for code in codes.values() if code is not None}
        if not refusals:
            return
        if is_whole:
            codes = {name: code or self._code_of_bystander(name) for name, code in codes.items()}
            refusals = {code for code in codes.values() if code is not None}
        try:
            for code in sorted(refusals):
                self._cut_topics(codes, code)
        except TypeError:
            self._refuse_all(CODES[AclResource.TOPIC])

    def _cut_topics(self, codes: dict[Any, ErrorCode | None], code: ErrorCode) -> None:
        def is_kept(name: str | None, topic_id: bytes | None) -> bool:
            return codes.get(name) != code and codes.get(topic_id) != code

        if self.verdict.request is None:
            return
        halves = cut(
            self._api,
            self._version,
            self._request,
            is_kept,
            TopicName,
            TopicId,
            keeps_all=True,
        )
        if halves.denied is None:
            return
        refusal = self._api.refuse_items(halves.denied, code)
        restore_names(self._api, self._version, refusal, self._client, self._topics.name_of)
        if code is ErrorCode.OPERATION_NOT_ATTEMPTED:
            report_missing(refusal, self._topics.partitions_of)
        self.verdict.cut(halves, refusal)

    def _code_of_name(self, name: str, row: Access) -> ErrorCode | None:
        if row.is_for_missing and (
            # The cheaper question first: in a proxy, a broker answers the other.
            self._client.has(row.operation, AclResource.TOPIC, name)
            or self._topics.id_of(name) is not None
        ):
            return None
        if self._client.may(row.operation, AclResource.TOPIC, name):
            return None
        if row.operation is Operation.DELETE and row.or_on_cluster is not None:
            # A client that may describe a topic learns that it does not exist.
            is_visible = self._client.has(Operation.DESCRIBE, AclResource.TOPIC, name)
            if is_visible and self._topics.id_of(name) is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def _code_of_id(self, topic_id: bytes, row: Access) -> ErrorCode | None:
        name = self._topics.name_of(topic_id)
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if row.is_for_missing or self._client.may(row.operation, AclResource.TOPIC, name):
            return None
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def _code_of_bystander(self, name: str) -> ErrorCode:
        """Return the code of a topic that is not served because another one is denied."""
        is_missing = self._topics.id_of(name) is None
        return (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if is_missing
            else ErrorCode.OPERATION_NOT_ATTEMPTED
        )

    @property
    def _request(self) -> Any:
        return self.verdict.request

    def _refuse_all(self, code: ErrorCode) -> None:
        refusal = self._api.refuse(self.verdict.request, code)
        shorten(self._api, self._version, refusal)
        self.verdict.refuse(refusal)
