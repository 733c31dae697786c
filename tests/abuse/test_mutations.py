"""Valid requests, broken in every way: the connection is closed, or there is an answer.

A stranger to a closed broker gets answers about versions and logins only. A user without rules gets
as far as the access rules.
"""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from rookery.broker.call import routes
from tests.abuse.attack import FIRST, SIMPLE, Attacker, check_simple, framed
from tests.abuse.samples import Sample, some, walk
from tests.abuse.victims import Target

# Of the newest version, which most clients speak, and of each of the others.
NEWEST, OLDER = 100, 20
# To a stranger, most requests are alike: what they are is not looked at.
STRANGE = 5
LOGIN_KEYS = frozenset({17, 36})
BEFORE_LOGIN = LOGIN_KEYS | {18}

CASES = [
    pytest.param(
        route.api.request.__module__.rpartition(".")[2],
        version,
        NEWEST if version == route.versions[-1] else OLDER,
        id=f"{route.api.name}-{version}",
    )
    for route in routes().values()
    for version in route.versions
]


def check(sample: Sample, answer: bytes, request: bytes) -> None:
    """An answer has the form of its version, and is not the one for what nobody expected."""

    def look(name: str, value: Any) -> None:
        assert value is not ErrorCode.unknown_server_error, request.hex()
        assert not (isinstance(value, str) and "Traceback" in value), request.hex()

    walk(sample.answer(answer), look)


@pytest.mark.parametrize(("folder", "version", "count"), CASES)
def test_malformed_request_is_answered_or_closes_its_connection(
    target: Target, topic_id: uuid.UUID, folder: str, version: int, count: int
) -> None:
    sample = Sample(folder, version, topic_id)
    if target.is_stranger:
        count = min(count, STRANGE)
    # A valid message may end the connection of a client that logs in with it, and fails.
    may_end = target.name != "plaintext" and sample.key in LOGIN_KEYS
    requests = [
        sample.header() + sample.body(),
        *some(sample.mutations(), count, f"{folder}-{version}"),
    ]
    line = Attacker(target.door)
    try:
        for number, request in enumerate(requests):
            line.send(framed(request) + SIMPLE)
            answer = line.read()
            if answer is not None and answer[:4] == struct.pack(">i", FIRST):
                assert not target.is_stranger or sample.key in BEFORE_LOGIN
                check(sample, answer, request)
                answer = line.read()
            if answer is None:
                is_refused = target.is_stranger and sample.key not in BEFORE_LOGIN
                assert number or may_end or is_refused, "the valid request closed the connection"
                line.__exit__(None, None, None)
                line = Attacker(target.door)
            else:
                check_simple(answer)
    finally:
        line.__exit__(None, None, None)
