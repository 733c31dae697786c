"""Settings that change while the proxy runs: what drains, what stays, and what is refused."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.broker.settings import BrokerSettings
from rookery.errors import ConfigError
from rookery.proxy.filterapi import Filter
from rookery.proxy.operation.settingsreload import SettingsReload
from rookery.proxy.settings import FilterSettings, ProxySettings, VirtualClusterSettings
from rookery.testing.ports import HOST, free_port
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from tests.proxy import listings
from tests.proxy.listings import cluster_at
from tests.proxy.scripted import ScriptedBroker
from tests.proxy.test_upstreams import REQUEST, Numbered, answer, lists_groups


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("upstream")
    with ServedBroker(folder / "data", BrokerSettings(durability="os")) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic("a.one"), NewTopic("b.two")]).values():
            future.result(20)
        yield broker.bootstrap


@contextmanager
def serving(settings: ProxySettings) -> Iterator[ServedProxy]:
    with ServedProxy(settings=settings) as proxy:
        yield proxy


@contextmanager
def scripted(behave: Numbered) -> Iterator[ScriptedBroker]:
    broker = ScriptedBroker(lists_groups(behave))
    try:
        yield broker
    finally:
        broker.close()


@contextmanager
def client_of(settings: VirtualClusterSettings) -> Iterator[socket.socket]:
    """A client that has sent one request and read its response."""
    with socket.create_connection(settings.address, 20) as client:
        exchange(client)
        yield client


def exchange(client: socket.socket) -> None:
    client.sendall(REQUEST)
    head = client.recv(4, socket.MSG_WAITALL)
    assert len(client.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)) > 4


def topics(settings: VirtualClusterSettings) -> set[str]:
    return listings.topics(settings.address.text)


def test_clusters_come_and_go(upstream: str) -> None:
    old, new = cluster_at(upstream), cluster_at(upstream)
    with serving(ProxySettings(clusters={"old": old})) as proxy, client_of(old) as client:
        change = proxy.do(proxy.proxy.apply(ProxySettings(clusters={"new": new})))

        assert (change.added, change.changed, change.removed) == (("new",), (), ("old",))
        assert client.recv(1) == b""
        assert topics(new) == {"a.one", "b.two"}
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(old.address, 20)


def test_unchanged_cluster_keeps_its_connections(upstream: str) -> None:
    kept, changed = cluster_at(upstream), cluster_at(upstream)
    settings = ProxySettings(clusters={"kept": kept, "changed": changed})
    with (
        serving(settings) as proxy,
        client_of(kept) as client,
        client_of(changed) as other,
    ):
        prefixed = replace(changed, filters=("names",))
        new = ProxySettings(
            clusters={"kept": kept, "changed": prefixed},
            filter={"names": FilterSettings("topic_prefix", {"prefix": "a."})},
        )
        before = proxy.proxy.clusters[0]
        change = proxy.do(proxy.proxy.apply(new))

        assert (change.added, change.changed, change.removed) == ((), ("changed",), ())
        assert other.recv(1) == b""
        exchange(client)
        assert proxy.proxy.clusters[0] is before
        assert topics(kept) == {"a.one", "b.two"}
        assert topics(changed) == {"one"}
        # another option of a filter is a change of the clusters that use it
        options = {"names": FilterSettings("topic_prefix", {"prefix": "b."})}
        assert proxy.do(proxy.proxy.apply(replace(new, filter=options))).changed == ("changed",)
        assert topics(changed) == {"two"}
        wait_until(lambda: proxy.proxy.draining == 0)
        assert len(proxy.proxy.share.listeners) == 4


def test_changed_file_of_a_filter_replaces_its_clusters(upstream: str, tmp_path: Path) -> None:
    schema = tmp_path / "orders.sql"
    schema.write_text("id bigint")
    options = {"format": "json", "schema_file": str(schema)}
    kept, checked = cluster_at(upstream), replace(cluster_at(upstream), filters=("orders",))
    settings = ProxySettings(
        clusters={"kept": kept, "checked": checked},
        filter={"orders": FilterSettings("record_schema", options)},
    )
    with serving(settings) as proxy:
        assert proxy.do(proxy.proxy.apply(settings)).changed == ()

        schema.write_text("id bigint, name string")
        assert proxy.do(proxy.proxy.apply(settings)).changed == ("checked",)
        assert proxy.do(proxy.proxy.apply(settings)).changed == ()

        schema.write_text("no schema")
        with pytest.raises(ConfigError):
            proxy.do(proxy.proxy.apply(settings))
        # it is still not what the cluster uses
        schema.write_text("id bigint, name string")
        assert proxy.do(proxy.proxy.apply(settings)).changed == ()


def test_clusters_exchange_their_ports(upstream: str) -> None:
    first, second = cluster_at(upstream, filters=("a",)), cluster_at(upstream, filters=("b",))
    filters = {name: FilterSettings("topic_prefix", {"prefix": f"{name}."}) for name in ("a", "b")}
    settings = ProxySettings(clusters={"one": first, "two": second}, filter=filters)
    with serving(settings) as proxy:
        assert (topics(first), topics(second)) == ({"one"}, {"two"})
        swapped = {
            "one": replace(first, listen=second.listen, node_ports=second.node_ports),
            "two": replace(second, listen=first.listen, node_ports=first.node_ports),
        }
        proxy.do(proxy.proxy.apply(replace(settings, clusters=swapped)))

        assert (topics(first), topics(second)) == ({"two"}, {"one"})


@pytest.mark.parametrize(
    ("wrong", "setting"),
    [
        ({"filters": ("unknown",)}, "filters"),
        ({"upstream": "nonsense"}, "upstream"),
        ({"node_ports": "9-1"}, "node_ports"),
        ({"listen": f"sasl_plaintext://{HOST}:0"}, "users_file"),
        ({"listen": f"ssl://{HOST}:0"}, "certificate_file"),
    ],
)
def test_bad_settings_change_nothing(upstream: str, wrong: dict[str, object], setting: str) -> None:
    good, other = cluster_at(upstream), cluster_at(upstream)
    settings = ProxySettings(clusters={"good": good})
    with serving(settings) as proxy, client_of(good) as client:
        added = replace(other, **wrong)  # type: ignore[arg-type]  # names and values of fields
        bad = ProxySettings(clusters={"good": replace(good, filters=("deny",)), "bad": added})
        with pytest.raises(ConfigError, match=rf"clusters\.bad\.{setting}"):
            proxy.do(proxy.proxy.apply(bad))

        exchange(client)
        assert [each.name for each in proxy.proxy.clusters] == ["good"]
        assert proxy.proxy.settings == proxy.settings
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(other.address, 20)
        assert topics(good) == {"a.one", "b.two"}


def test_port_of_another_program_changes_nothing(upstream: str) -> None:
    good, other = cluster_at(upstream), cluster_at(upstream)
    with (
        serving(ProxySettings(clusters={"good": good})) as proxy,
        socket.create_server(other.address),
    ):
        with pytest.raises(ConfigError, match="cannot listen on"):
            proxy.do(proxy.proxy.apply(ProxySettings(clusters={"good": good, "bad": other})))

        assert topics(good) == {"a.one", "b.two"}


def test_two_clusters_with_one_port_are_refused(upstream: str) -> None:
    good, other = cluster_at(upstream), cluster_at(upstream)
    with serving(ProxySettings(clusters={"good": good})) as proxy:
        twice = replace(other, listen=good.listen)
        with pytest.raises(ConfigError, match=r"clusters\.twice\.listen.*belongs to .* good"):
            proxy.do(proxy.proxy.apply(ProxySettings(clusters={"good": good, "twice": twice})))


def test_limits_change_all_clusters_and_some_settings_need_a_restart(upstream: str) -> None:
    good = cluster_at(upstream)
    with serving(ProxySettings(clusters={"good": good})) as proxy:
        new = replace(proxy.settings, max_connections=5, workers=3, answer_bytes=2**21)
        change = proxy.do(proxy.proxy.apply(new))

        assert change.changed == ("good",)
        assert change.need_restart == ("answer_bytes", "workers")
        assert proxy.proxy.settings == replace(new, workers=1, answer_bytes=2**28)
        assert topics(good) == {"a.one", "b.two"}


def test_requests_in_flight_are_answered_before_the_connection_closes() -> None:
    arrived, release = threading.Event(), threading.Event()

    def wait(client: socket.socket, numbers: list[int]) -> None:
        arrived.set()
        release.wait(20)
        client.sendall(b"".join(map(answer, numbers)))

    with scripted(wait) as broker:
        old = cluster_at(f"{HOST}:{broker.port}")
        with serving(ProxySettings(clusters={"one": old})) as proxy:
            with socket.create_connection(old.address, 20) as client:
                client.sendall(REQUEST)
                assert arrived.wait(20)
                changed = replace(old, advertise="localhost")
                proxy.do(proxy.proxy.apply(ProxySettings(clusters={"one": changed})))
                # too late: it is not started
                client.sendall(REQUEST)
                assert proxy.proxy.draining == 1
                release.set()
                with client.makefile("rb") as stream:
                    assert stream.read(len(answer(7))) == answer(7)
            wait_until(lambda: proxy.proxy.draining == 0)
            wait_until(lambda: broker.ended == broker.accepted)


def test_drain_ends_after_its_time() -> None:
    arrived, end = threading.Event(), threading.Event()

    def keep_silent(client: socket.socket, numbers: list[int]) -> None:
        arrived.set()
        end.wait(20)

    with scripted(keep_silent) as broker:
        old = cluster_at(f"{HOST}:{broker.port}")
        settings = ProxySettings(clusters={"one": old}, drain_timeout_ms=200)
        with (
            serving(settings) as proxy,
            socket.create_connection(old.address, 20) as client,
        ):
            client.sendall(REQUEST)
            assert arrived.wait(20)
            proxy.do(
                proxy.proxy.apply(replace(settings, clusters={"two": cluster_at(old.upstream)}))
            )

            wait_until(lambda: proxy.proxy.draining == 0)
            assert ended(client)
        end.set()


def ended(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_upstream_that_wants_a_login_is_refused(upstream: str, tmp_path: Path) -> None:
    """Whether the proxy needs credentials is known only after it has asked the upstream."""
    good = cluster_at(upstream)
    users = tmp_path / "users.toml"
    users.write_text('[alice]\npassword = "alice-secret"\n')
    users.chmod(0o600)
    closed = replace(good, listen=f"sasl_plaintext://{good.address.text}", users_file=str(users))
    with serving(ProxySettings(clusters={"closed": closed}, insecure=True)) as proxy:
        # the proxy itself is an upstream that wants a login
        front = cluster_at(
            closed.address.text, listen=f"sasl_plaintext://{HOST}:{free_port()}",
            users_file=str(users),
        )  # fmt: skip
        both = ProxySettings(clusters={"closed": closed, "front": front}, insecure=True)
        with pytest.raises(ConfigError, match="wants a login"):
            proxy.do(proxy.proxy.apply(both))

        assert [each.name for each in proxy.proxy.clusters] == ["closed"]


def test_draining_cluster_opens_no_ports(upstream: str) -> None:
    cluster = cluster_at(upstream)
    with serving(ProxySettings(clusters={"one": cluster})) as proxy:
        [old] = proxy.proxy.clusters
        changed = {"one": replace(cluster, advertise="localhost")}
        proxy.do(proxy.proxy.apply(ProxySettings(clusters=changed)))

        assert not old.is_open
        assert proxy.do(old.listeners.open({7}, is_retry=True)) == []
        # It stops after its connections, of which there are none.
        wait_until(lambda: not old.listeners.list_sockets(), "its ports are closed")


class Unready(Filter):
    """Fails at its start, as the code of a user may."""

    async def start(self) -> None:
        raise RuntimeError("not today")


def test_filter_that_fails_at_its_start_changes_nothing(upstream: str) -> None:
    good, other = cluster_at(upstream), cluster_at(upstream)
    with serving(ProxySettings(clusters={"good": good})) as proxy:
        proxy.proxy._filters = {"bad": [Unready()]}

        async def reload() -> str:
            reload = SettingsReload(proxy.proxy.apply, asyncio.Event())
            await reload.read(FixedSource(ProxySettings(clusters={"good": good, "bad": other})))
            return reload.trouble

        assert "not today" in proxy.do(reload())
        assert [each.name for each in proxy.proxy.clusters] == ["good"]
        assert topics(good) >= {"a.one", "b.two"}


@dataclass(frozen=True)
class FixedSource:
    """Settings as if they came from a file."""

    settings: ProxySettings

    def read(self) -> ProxySettings:
        return self.settings

    def locate(self, error: ConfigError) -> ConfigError:
        return error


def test_clients_lose_nothing_while_settings_change(upstream: str) -> None:
    """Connections drain several times under load; what is acknowledged is there, once, in order."""
    cluster = cluster_at(upstream)
    settings = ProxySettings(clusters={"one": cluster})
    with serving(settings) as proxy:
        producer = Producer(
            {"bootstrap.servers": cluster.address.text, "enable.idempotence": True, "linger.ms": 1}
        )
        acknowledged: list[int] = []

        def note(error: KafkaError | None, message: Message) -> None:
            assert error is None
            acknowledged.append(int(message.value() or b""))

        for number in range(3000):
            producer.produce("a.one", b"%d" % number, partition=0, on_delivery=note)
            producer.poll(0)
            if number % 500 == 250:
                host = ("", "localhost")[number // 500 % 2]
                changed = replace(cluster, advertise=host)
                proxy.do(proxy.proxy.apply(replace(settings, clusters={"one": changed})))
        assert producer.flush(30) == 0
        assert acknowledged == list(range(3000))
        wait_until(lambda: proxy.proxy.draining == 0)

    consumer = Consumer({"bootstrap.servers": upstream, "group.id": "check"})
    consumer.assign([TopicPartition("a.one", 0, 0)])
    values: list[int] = []

    def has_all() -> bool:
        values.extend(int(each.value() or b"") for each in consumer.consume(3000, 1.0))
        return len(values) >= 3000

    wait_until(has_all)
    consumer.close()

    assert values == list(range(3000))
