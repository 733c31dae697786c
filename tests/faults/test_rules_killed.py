"""kill -9 while rules change: after the start, each change is there as a whole or not at all."""

from __future__ import annotations

import random
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Event, Thread

import pytest

from rookery.errors import ErrorCode, ProtocolError
from rookery.testing.broker import BrokerProcess
from rookery.testing.servedbroker import ask
from rookery.testing.wait import wait_until
from rookery.wire.messages.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from rookery.wire.messages.delete_acls import DELETE_ACLS, DeleteAclsFilter, DeleteAclsRequest
from rookery.wire.messages.describe_acls import DESCRIBE_ACLS, DescribeAclsRequest

KILLS = 8
RULES = 300
"""The rules of one change."""
ANY, LITERAL, TOPIC, READ, ALLOW = 1, 3, 2, 3, 3
FLAGS = ["--authorizer", "acls", "--super-users", "User:ANONYMOUS"]

RuleNames = frozenset[tuple[str, str]]
"""The principals and topics of some rules."""


class RuleChanger:
    """A client that adds and removes sets of rules until its broker goes away."""

    def __init__(self, bootstrap: str, rules: RuleNames, numbers: Iterable[int]) -> None:
        self.acknowledged = rules
        self.wanted = rules
        """The rules after the change in flight."""
        self.changes = 0
        self.refused: list[ErrorCode] = []
        self._bootstrap = bootstrap
        self._numbers = iter(numbers)
        self._stops = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Wait until the client has noticed that its broker is gone."""
        self._stops.set()
        self._thread.join()

    def _run(self) -> None:
        with suppress(OSError, ProtocolError):
            while not self._stops.is_set():
                self._add(f"User:{next(self._numbers)}")
                users = sorted({user for user, _ in self.acknowledged})
                if len(users) > 2:
                    # Two filters: both sets go, or none.
                    self._remove(users[:2])

    def _add(self, user: str) -> None:
        names = [f"topic-{number}" for number in range(RULES)]
        self.wanted = self.acknowledged | {(user, name) for name in names}
        creations = [
            AclCreation(
                resource_type=TOPIC, resource_name=name, resource_pattern_type=LITERAL,
                principal=user, host="*", operation=READ, permission_type=ALLOW,
            )
            for name in names
        ]  # fmt: skip
        request = CreateAclsRequest(creations=creations)
        results = ask(self._bootstrap, CREATE_ACLS, 3, request).results
        self._acknowledge([result.error_code for result in results])

    def _remove(self, users: list[str]) -> None:
        self.wanted = frozenset(rule for rule in self.acknowledged if rule[0] not in users)
        filters = [
            DeleteAclsFilter(
                resource_type_filter=ANY, resource_name_filter=None, pattern_type_filter=ANY,
                principal_filter=user, host_filter=None, operation=ANY, permission_type=ANY,
            )
            for user in users
        ]  # fmt: skip
        request = DeleteAclsRequest(filters=filters)
        results = ask(self._bootstrap, DELETE_ACLS, 3, request).filter_results
        self._acknowledge([result.error_code for result in results])

    def _acknowledge(self, codes: list[ErrorCode]) -> None:
        self.refused += [code for code in codes if code is not ErrorCode.NONE]
        self.acknowledged = self.wanted
        self.changes += 1


def rules_in_force(bootstrap: str) -> RuleNames:
    request = DescribeAclsRequest(
        resource_type_filter=ANY, resource_name_filter=None, pattern_type_filter=ANY,
        principal_filter=None, host_filter=None, operation=ANY, permission_type=ANY,
    )  # fmt: skip
    described = ask(bootstrap, DESCRIBE_ACLS, 3, request)
    return frozenset(
        (rule.principal, resource.resource_name)
        for resource in described.resources
        for rule in resource.acls
    )


@pytest.mark.timeout(300 + 15 * KILLS)
@pytest.mark.usefixtures("own_victim")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_change_of_rules_survives_kill_9_whole_or_not_at_all(
    tmp_path: Path, workers: int
) -> None:
    chance, pause, numbers = random.Random(workers), Event(), count()
    rules: RuleNames = frozenset()
    with BrokerProcess(tmp_path / "data", workers=workers, flags=FLAGS) as broker:
        for _ in range(KILLS):
            changer = RuleChanger(broker.bootstrap, rules, numbers)
            wait_until(lambda: changer.changes > 2)  # noqa: B023 (it is called at once)
            pause.wait(chance.random() * 0.1)  # the random moment
            broker.kill()
            changer.stop()
            broker.start()
            rules = rules_in_force(broker.bootstrap)
            assert rules in (changer.acknowledged, changer.wanted)
            assert not changer.refused
