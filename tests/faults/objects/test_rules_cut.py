"""A broker that is cut off decides by the rules that it knows, and no change is done until then."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from rookery.errors import ErrorCode
from rookery.testing.backends import ETCD, STORE
from rookery.testing.brokers import Host
from rookery.testing.ports import HOST, free_port
from rookery.testing.wait import wait_until
from rookery.wire.messages.create_acls import CREATE_ACLS, CreateAclsRequest
from rookery.wire.messages.delete_acls import DELETE_ACLS, DeleteAclsRequest
from rookery.wire.messages.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.broker.access.guardedbroker import USERS, add_users
from tests.broker.access.login import TestedServer, UserConnection
from tests.broker.access.test_two_brokers import EVERY_RULE, RULE
from tests.faults.history.cables import Cable, Cables
from tests.faults.objects.scene import Scene

QUICK = (
    *("--session-timeout-ms", "2000", "--beat-interval-ms", "300", "--drain-timeout-ms", "1000"),
    *("--access-lease-ms", "4000"),
)
CUT = ("closed", "timed out")
"""The outcome of a request that gets no answer."""


class ClosedHost(Host):
    """A broker with a port for super users and one for logins."""

    def __init__(self, scene: Scene, name: str, *, store: str, cluster: str) -> None:
        super().__init__(scene.folder / name, store=store, cluster=cluster, flags=QUICK)
        self.login_port = free_port()
        self._config = scene.folder / f"{name}.toml"
        self._config.write_text(
            f"""[broker]
            authorizer = "acls"
            super_users = "User:ANONYMOUS;User:admin"
            [broker.listeners.PLAINTEXT]
            listen = "{self.bootstrap}"
            [broker.listeners.SASL]
            listen = "sasl_plaintext://{HOST}:{self.login_port}"
            mechanisms = "PLAIN"
            """
        )

    def command(self) -> list[str]:
        """Return the command line; the listeners are in a file."""
        command = super().command()
        at = command.index("--listen")
        return [*command[:at], *command[at + 2 :], "--config", str(self._config)]

    @property
    def server(self) -> TestedServer:
        """The broker as clients see it."""
        return TestedServer(self.bootstrap, self.login_port)

    def readiness(self) -> str:
        """Return what the broker reports about its readiness."""
        host, _, port = self.http[0].rpartition(":")
        with closing(HTTPConnection(host, int(port), timeout=10)) as connection:
            connection.request("GET", "/health/ready")
            return json.dumps(json.loads(connection.getresponse().read()))


@contextmanager
def two_hosts(scene: Scene) -> Iterator[tuple[ClosedHost, ClosedHost, Cables]]:
    """Start two brokers with the user alice, which may read; a cable leads the first to the log."""
    where = scene.cluster if scene.kind == ETCD else scene.backend.seaweed.endpoint
    port = urlsplit(where).port
    assert port is not None
    front = free_port()
    with Cables([Cable(front, port)]) as cables:
        if scene.kind == ETCD:
            store, cluster = scene.store, scene.cluster.replace(f":{port}", f":{front}")
        else:
            store, cluster = (
                scene.proxied().replace(scene.proxy.endpoint, f"http://{HOST}:{front}"),
                "",
            )
        with (
            ClosedHost(scene, "first", store=store, cluster=cluster) as first,
            ClosedHost(scene, "second", store=scene.store, cluster=scene.cluster) as second,
        ):
            add_users(second.server)
            second.server.ensure_topic("mine")
            second.server.ask(CREATE_ACLS, 3, CreateAclsRequest(creations=[RULE]))
            yield first, second, cables


def describe(user: UserConnection) -> ErrorCode | str:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="mine")])
    answer = user.ask(METADATA, 12, request)
    return answer.topics[0].error_code if isinstance(answer, MetadataResponse) else str(answer)


def revoke(broker: ClosedHost) -> list[ErrorCode]:
    """Remove the rule; return the codes of the answer, which waits for the other broker."""
    answer = broker.server.ask(DELETE_ACLS, 3, DeleteAclsRequest(filters=[EVERY_RULE]))
    return [result.error_code for result in answer.filter_results]


def can_log_in(broker: ClosedHost) -> bool:
    with closing(UserConnection(broker.login_port, "alice", USERS["alice"])) as user:
        try:
            return describe(user) not in CUT
        except (AssertionError, OSError):
            return False


@pytest.mark.parametrize("kind", [ETCD, STORE])
def test_broker_that_is_cut_off_from_the_cluster_log_does_not_serve_by_old_rules(
    scene: Scene,
) -> None:
    with two_hosts(scene) as (first, second, cables):
        alice = UserConnection(first.login_port, "alice", USERS["alice"])
        admin = UserConnection(first.login_port, "admin", USERS["admin"])
        with closing(alice), closing(admin):
            assert (describe(alice), describe(admin)) == (ErrorCode.NONE, ErrorCode.NONE)
            cables.sever(0)
            assert describe(alice) is ErrorCode.NONE

            assert revoke(second) == [ErrorCode.NONE]

            assert describe(alice) in CUT
            assert describe(admin) is ErrorCode.NONE
            assert not can_log_in(first)
            assert "access rules and users may be out of date" in first.readiness()
            cables.restore(0)
            wait_until(lambda: can_log_in(first))
            assert describe(alice) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            wait_until(lambda: "out of date" not in first.readiness())


@pytest.mark.parametrize("kind", [ETCD, STORE])
def test_broker_that_was_suspended_does_not_serve_by_old_rules(scene: Scene) -> None:
    with two_hosts(scene) as (first, second, _):
        alice = UserConnection(first.login_port, "alice", USERS["alice"])
        with closing(alice):
            assert describe(alice) is ErrorCode.NONE
            os.kill(first.pid, signal.SIGSTOP)
            try:
                assert revoke(second) == [ErrorCode.NONE]
            finally:
                os.kill(first.pid, signal.SIGCONT)
            assert describe(alice) in {*CUT, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
            wait_until(lambda: can_log_in(first))
            assert describe(alice) is ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("kind", [ETCD, STORE])
def test_dead_broker_delays_a_change_of_rules_until_it_is_given_up(scene: Scene) -> None:
    with two_hosts(scene) as (first, second, _):
        first.kill()
        assert revoke(second) == [ErrorCode.NONE]
        assert second.server.count_rules() == 0
        with closing(UserConnection(second.login_port, "alice", USERS["alice"])) as alice:
            assert describe(alice) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
