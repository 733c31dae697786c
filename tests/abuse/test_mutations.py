"""Valid requests, broken in every way: the connection is closed, or there is an answer."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from rookery.broker.call import routes
from tests.abuse.attack import FIRST, SIMPLE, Attacker, check_simple, framed
from tests.abuse.conftest import Victim
from tests.abuse.samples import Sample, some, walk

# Of the newest version, which most clients speak, and of each of the others.
NEWEST, OLDER = 100, 20

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
    victim: Victim, topic_id: uuid.UUID, folder: str, version: int, count: int
) -> None:
    sample = Sample(folder, version, topic_id)
    requests = [
        sample.header() + sample.body(),
        *some(sample.mutations(), count, f"{folder}-{version}"),
    ]
    line = Attacker(victim.port)
    try:
        for number, request in enumerate(requests):
            line.send(framed(request) + SIMPLE)
            answer = line.read()
            if answer is not None and answer[:4] == struct.pack(">i", FIRST):
                check(sample, answer, request)
                answer = line.read()
            if answer is None:
                assert number, "the valid request closed the connection"
                line.__exit__(None, None, None)
                line = Attacker(victim.port)
            else:
                check_simple(answer)
    finally:
        line.__exit__(None, None, None)
