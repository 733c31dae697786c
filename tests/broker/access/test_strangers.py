"""A user without rules gets nothing from any API, and the check finds an API that is not guarded.

The checks of `test_guard.py` and of the index of rules (`tests/security/test_aclrules.py`) have
planted bugs, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rookery.broker.call import Route, routes
from rookery.broker.pages import acldocs
from rookery.errors import ErrorCode
from rookery.net.session import ClientSession
from rookery.security.access import Access, AccessScope, Denial
from rookery.service.access.guard import OPEN_APIS, Guard
from rookery.service.access.redaction import NOT_ASKED
from rookery.service.access.verdict import AccessVerdict
from rookery.wire.message import Api, Message
from rookery.wire.messages.describe_log_dirs import DescribeLogDirsResponse
from tests.broker.access.guardedbroker import USERS, GuardedBroker, add_users
from tests.broker.access.login import TestedServer, UserConnection
from tests.broker.access.requests import GROUP, KNOWN, TXN, AccessCase, cases

DENIALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
LOG_DIRS_CODE_SINCE = 3
"""The first version of DescribeLogDirs with an error code."""
FAULTY = {"from another topic", "after all topics", "from no partition"}
"""Requests for a page that no topic begins."""
OWN = {"CreateDelegationToken", "DescribeDelegationToken"}
"""APIs that give every user its own tokens; `test_token_parity.py` has those of others."""
GUARDED = [
    route for key, route in routes().items() if key not in OPEN_APIS and route.api.name not in OWN
]
CASES = list(cases())
each_route = pytest.mark.parametrize("route", GUARDED, ids=lambda route: route.api.name)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestedServer]:
    with GuardedBroker(tmp_path_factory.mktemp("guarded")) as broker:
        server = TestedServer(broker.bootstrap, broker.login_port)
        add_users(server)
        server.prepare(GROUP, TXN)
        yield server


@pytest.fixture(scope="module")
def alice(server: TestedServer) -> Iterator[UserConnection]:
    user = UserConnection(server.port, "alice", USERS["alice"])
    yield user
    user.close()


def values(message: Any, field: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values in a message with the names of their fields."""
    if isinstance(message, Message):
        for name in message.__fields__:
            yield from values(getattr(message, name), name)
    elif isinstance(message, list):
        for element in message:
            yield from values(element, field)
    else:
        yield field, message


def is_disclosing(answer: Message) -> bool:
    """Return whether a list shows what exists, or which operations are allowed."""
    for field, value in values(answer):
        if field.endswith("authorized_operations") and value not in (0, NOT_ASKED):
            return True
        if value in (KNOWN, GROUP, TXN):
            return True
    return False


def is_denied(case: AccessCase, answer: Message | str) -> bool:
    """Return whether a stranger gets what an API gives to strangers."""
    if isinstance(answer, str):
        return answer == "closed"
    if isinstance(answer, DescribeLogDirsResponse) and case.version < LOG_DIRS_CODE_SINCE:
        return not answer.results
    rows = case.route.touches
    is_filtered = all(
        row.scope is AccessScope.LISTED or row.denial is Denial.REDACT for row in rows
    )
    if is_filtered:
        return not is_disclosing(answer)
    codes = {value for _, value in values(answer) if isinstance(value, ErrorCode)}
    is_unknown_id = case.by_id and case.topic != KNOWN
    return (
        bool(codes & DENIALS)
        or (is_unknown_id and ErrorCode.UNKNOWN_TOPIC_ID in codes)
        # A request for everything gets what its client may see.
        or (case.variant.startswith("all") and not is_disclosing(answer))
        # Faults of a request come first.
        or (case.variant in FAULTY and ErrorCode.INVALID_REQUEST in codes)
        # Earlier versions have no such keys.
        or (case.variant == "share" and ErrorCode.INVALID_REQUEST in codes)
    )


def served(route: Route, server: TestedServer, user: UserConnection) -> list[str]:
    """Return the cases of an API in which a user is not denied."""
    served_cases = []
    for case in CASES:
        if case.route is route:
            ids = {KNOWN: server.ensure_topic(KNOWN)}
            answer = user.ask(case.api, case.version, case.request(ids))
            if not is_denied(case, answer):
                served_cases.append(f"{case}: {answer}")
    return served_cases


@each_route
def test_a_stranger_is_denied(route: Route, server: TestedServer, alice: UserConnection) -> None:
    server.set_rules([])
    assert not served(route, server, alice)


@each_route
def test_an_api_that_is_not_guarded_is_found(
    route: Route, server: TestedServer, alice: UserConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Guard.check

    def check_others(
        guard: Guard,
        api: Api[Any, Any],
        rows: tuple[Access, ...],
        version: int,
        request: Message,
        session: ClientSession,
    ) -> AccessVerdict | None:
        if api is route.api:
            return None
        return check(guard, api, rows, version, request, session)

    server.set_rules([])
    server.prepare(GROUP, TXN)
    monkeypatch.setattr(Guard, "check", check_others)
    assert served(route, server, alice)


@each_route
def test_a_row_that_is_lost_is_missing_in_the_page(
    route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, table = acldocs.page(), routes()
    for row in route.touches:
        rows = tuple(touch for touch in route.touches if touch is not row)
        changed = {**table, route.api.key: route._replace(touches=rows)}
        monkeypatch.setattr(acldocs, "routes", lambda changed=changed: changed)
        assert acldocs.page() != whole
