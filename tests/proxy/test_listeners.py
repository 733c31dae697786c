"""A virtual cluster with several listeners: clients of each learn its addresses, and no others."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from rookery.errors import ConfigError
from rookery.proxy.filterapi import FORWARD, Filter, FilterContext, Verdict, on_request
from rookery.proxy.settings import (
    ClusterListenerSettings,
    ProxySettings,
    VirtualClusterSettings,
)
from rookery.service.listen.listenersettings import ListenerSecurity
from rookery.testing.certificates import Certificates
from rookery.testing.ports import HOST, free_port, free_ports
from rookery.testing.servedbroker import ask
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.codec import read_response, request_frame
from rookery.wire.message import Api, Message, Request, Response
from rookery.wire.messages.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from rookery.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from rookery.wire.messages.metadata import METADATA, MetadataRequest
from tests.proxy.test_health import Page, write_certificate
from tests.proxy.test_node_growth import broker_in, listed
from tests.proxy.test_security import EDGE_PASSWORD, edge_login, produce

NAMES = "broker-$(node_id).edge.localhost"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("edge")
    return Certificates.make(folder, HOST, "localhost", "*.edge.localhost")


def users_in(folder: Path) -> str:
    path = folder / "users.toml"
    path.touch(mode=0o600)
    path.write_text(f'[erin]\npassword = "{EDGE_PASSWORD}"\n')
    return str(path)


def listener_at(listen: str = "", **settings: Any) -> ClusterListenerSettings:
    """Return a listener on free ports, with a range of two for brokers."""
    first = free_ports(3)
    return ClusterListenerSettings(
        listen=f"{listen}{HOST}:{first}", node_ports=f"{first + 1}-{first + 2}", **settings
    )


class Arrivals(Filter):
    """Notes the listener and the principal of clients that ask for metadata."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[str, str]] = set()

    @on_request(METADATA)
    def note(self, context: FilterContext, request: Message) -> Verdict:
        self.seen.add((context.session.listener, context.principal))
        return FORWARD


@dataclass(frozen=True)
class Edge:
    """A proxy with three listeners before one upstream."""

    proxy: ServedProxy
    arrivals: Arrivals
    files: Certificates

    def client(self, name: str) -> dict[str, Any]:
        """Return the settings of a client of a listener."""
        config: dict[str, Any] = {"bootstrap.servers": self.at(name).address.text}
        return config | (edge_login(self.files) if name == "external" else {})

    def at(self, name: str) -> ClusterListenerSettings:
        return self.proxy.settings.listeners[name]

    def ask_tls(self, name: str, api: Api[Request, Response], version: int, request: Any) -> Any:
        """Ask over TLS, by a name that the client does not need to resolve."""
        context = ssl.create_default_context(cafile=str(self.files.ca))
        with (
            socket.create_connection(self.at("names").address, 20) as plain,
            context.wrap_socket(plain, server_hostname=name) as client,
            client.makefile("rb") as stream,
        ):
            client.sendall(b"".join(request_frame(api, version, 1, "test", request)))
            return read_response(api, version, stream.read(int.from_bytes(stream.read(4), "big")))


@pytest.fixture(scope="module")
def edge(
    server: str, files: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Edge]:
    port, arrivals = free_port(), Arrivals()
    settings = ProxySettings(
        users_file=users_in(tmp_path_factory.mktemp("users")),
        security=ListenerSecurity(certificate_file=str(files.server)),
        listeners={
            "internal": listener_at(),
            "external": listener_at("sasl_ssl://", advertise="localhost"),
            "names": ClusterListenerSettings(listen=f"ssl://{HOST}:{port}", node_names=NAMES),
        },
    )
    with ServedProxy(server, settings, [arrivals]) as proxy:
        yield Edge(proxy, arrivals, files)


def addresses_of(brokers: Mapping[int, Any]) -> set[tuple[str, int]]:
    return {(row.host, row.port) for row in brokers.values()}


@pytest.mark.parametrize("name", ["internal", "external"])
def test_clients_learn_the_addresses_of_their_listener(edge: Edge, name: str) -> None:
    config = edge.at(name)
    admin = AdminClient(edge.client(name))

    seen = addresses_of(admin.list_topics(timeout=20).brokers)
    nodes = admin.describe_cluster().result(20).nodes

    ports = config.ports(config.address.port)
    [(host, port)] = seen
    assert host == (config.advertise or HOST)
    assert ports.first <= port <= ports.last
    assert {(node.host, node.port) for node in nodes} == seen
    [cluster] = edge.proxy.proxy.clusters
    assert set(cluster.nodes_at(name).values()) == seen


def test_clients_of_names_learn_names(edge: Edge) -> None:
    port = edge.at("names").address.port
    [cluster] = edge.proxy.proxy.clusters
    [node_id] = cluster.nodes
    name = f"broker-{node_id}.edge.localhost"

    for asked in ("localhost", name):
        brokers = edge.ask_tls(asked, METADATA, 12, MetadataRequest(topics=[])).brokers
        assert [(row.host, row.port) for row in brokers] == [(name, port)]
        found = edge.ask_tls(
            asked, FIND_COORDINATOR, 3, FindCoordinatorRequest(key="group", key_type=0)
        )
        assert (found.host, found.port) in {(name, port), ("", -1)}
        listed_rows = edge.ask_tls(asked, DESCRIBE_CLUSTER, 0, DescribeClusterRequest()).brokers
        assert [(row.host, row.port) for row in listed_rows] == [(name, port)]


def test_records_pass_from_one_listener_to_another(edge: Edge) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    produce(edge.client("external"), topic)
    produce(edge.client("internal"), topic)
    for name in ("internal", "external"):
        consumer = Consumer(edge.client(name) | {"group.id": topic})
        consumer.assign([TopicPartition(topic, number, 0) for number in range(4)])
        values: list[bytes | None] = []

        def has_both(consumer: Consumer = consumer, values: list[bytes | None] = values) -> bool:
            values.extend(each.value() for each in consumer.consume(2, 1.0) if not each.error())
            return len(values) >= 2

        wait_until(has_both)
        consumer.close()
        assert values == [b"value", b"value"]


def test_filters_see_the_listener_and_its_principals(edge: Edge) -> None:
    for name in ("internal", "external"):
        AdminClient(edge.client(name)).list_topics(timeout=20)
    edge.ask_tls("localhost", METADATA, 12, MetadataRequest(topics=[]))

    assert edge.arrivals.seen >= {
        ("internal", "User:ANONYMOUS"),
        ("external", "User:erin"),
        ("names", "User:ANONYMOUS"),
    }


def test_listener_without_sasl_needs_no_login_and_that_with_sasl_does(edge: Edge) -> None:
    metadata = b"".join(request_frame(METADATA, 12, 7, "test", MetadataRequest(topics=[])))
    context = ssl.create_default_context(cafile=str(edge.files.ca))
    with (
        socket.create_connection(edge.at("external").address, 20) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as client,
    ):
        client.sendall(metadata)
        assert client.recv(1) == b""
    assert ask(edge.at("internal").address.text, METADATA, 12, MetadataRequest(topics=[])).brokers


def test_single_listener_has_the_name_of_its_protocol(server: str) -> None:
    arrivals = Arrivals()
    with ServedProxy(server, filters=[arrivals]) as proxy:
        AdminClient({"bootstrap.servers": proxy.bootstrap}).list_topics(timeout=20)

    assert {listener for listener, _ in arrivals.seen} == {"PLAINTEXT"}


def test_new_broker_gets_a_port_at_each_listener(tmp_path: Path) -> None:
    listeners = {"one": listener_at(), "two": listener_at()}
    settings = ProxySettings(refresh_interval_ms=100, listeners=listeners)
    with broker_in(tmp_path, 1) as first, ServedProxy(first.bootstrap, settings) as proxy:
        [cluster] = proxy.proxy.clusters
        with broker_in(tmp_path, 2):
            for name, each in listeners.items():
                wait_until(partial(shows, each, {1, 2}))
                seen = listed(each.address.text)
                assert seen == {node: at.port for node, at in cluster.nodes_at(name).items()}
                # a port of a broker is one to begin with, too
                assert listed(f"{HOST}:{seen[2]}") == seen


def shows(listener: ClusterListenerSettings, nodes: set[int]) -> bool:
    return set(listed(listener.address.text)) == nodes


def test_broker_without_a_port_at_one_listener_is_left_out_there(tmp_path: Path) -> None:
    wide, narrow = listener_at(), listener_at()
    last = narrow.ports(0).first
    narrow = replace(narrow, node_ports=f"{last}-{last}")
    settings = ProxySettings(refresh_interval_ms=100, listeners={"wide": wide, "narrow": narrow})
    with (
        broker_in(tmp_path, 1) as first,
        broker_in(tmp_path, 2),
        ServedProxy(first.bootstrap, settings) as proxy,
    ):
        wait_until(partial(shows, wide, {1, 2}))
        assert shows(narrow, {1})
        [cluster] = proxy.proxy.clusters
        assert cluster.missing_nodes.keys() == {2}
        page = Page(proxy)
        assert "gets no port" in page.warnings["brokers of default"]
        assert page.problems == {}


def test_health_reports_the_certificate_of_any_listener(server: str, tmp_path: Path) -> None:
    certificate = tmp_path / "proxy.pem"
    write_certificate(certificate, datetime.now(UTC) - timedelta(days=1))
    listeners = {
        "plain": listener_at(),
        "closed": listener_at("ssl://", certificate_file=str(certificate)),
    }
    with ServedProxy(server, ProxySettings(listeners=listeners)) as proxy:
        page = Page(proxy)
        assert page.problems.keys() == {"certificate default"}
        certificate.write_text("nonsense")
        wait_until(lambda: page.warnings)
        assert "previous certificate stays" in page.warnings["certificates and users of default"]
        write_certificate(certificate, datetime.now(UTC) + timedelta(days=1))
        wait_until(lambda: not page.problems and not page.warnings)


# Changes while the proxy runs.


def cluster_with(upstream: str, **listeners: ClusterListenerSettings) -> VirtualClusterSettings:
    return VirtualClusterSettings(upstream=upstream, listeners=listeners)


def is_listening(listener: ClusterListenerSettings) -> bool:
    with socket.socket() as client:
        client.settimeout(20)
        return client.connect_ex(listener.address) == 0


def test_listeners_come_and_go(server: str) -> None:
    first, second = listener_at(), listener_at()
    settings = ProxySettings(clusters={"one": cluster_with(server, first=first)})
    with ServedProxy(settings=settings) as proxy:
        both = {"one": cluster_with(server, first=first, second=second)}
        change = proxy.do(proxy.proxy.apply(replace(settings, clusters=both)))
        assert change.changed == ("one",)
        seen = listed(second.address.text)
        assert seen
        assert seen != listed(first.address.text)

        only = {"one": cluster_with(server, second=second)}
        proxy.do(proxy.proxy.apply(replace(settings, clusters=only)))
        assert listed(second.address.text) == seen
        assert not is_listening(first)


def test_listeners_of_two_clusters_exchange_their_ports(server: str) -> None:
    first, second = listener_at(), listener_at()
    settings = ProxySettings(
        clusters={"one": cluster_with(server, a=first), "two": cluster_with(server, a=second)}
    )
    with ServedProxy(settings=settings) as proxy:
        before = listed(first.address.text), listed(second.address.text)
        swapped = {"one": cluster_with(server, a=second), "two": cluster_with(server, a=first)}
        proxy.do(proxy.proxy.apply(replace(settings, clusters=swapped)))

        assert (listed(first.address.text), listed(second.address.text)) == before


def test_single_form_and_tables_replace_each_other(server: str) -> None:
    listener = listener_at()
    single = VirtualClusterSettings(
        upstream=server, listen=listener.listen, node_ports=listener.node_ports
    )
    settings = ProxySettings(clusters={"one": single})
    with ServedProxy(settings=settings) as proxy:
        seen = listed(listener.address.text)
        for cluster in (cluster_with(server, named=listener), single):
            proxy.do(proxy.proxy.apply(replace(settings, clusters={"one": cluster})))
            assert listed(listener.address.text) == seen


# Settings that cannot be used.

FREE = ClusterListenerSettings(listen=f"{HOST}:9092")
BAD: dict[str, tuple[VirtualClusterSettings, str]] = {
    "both forms": (
        VirtualClusterSettings(listen=":9192", listeners={"a": FREE}),
        r"^clusters\.bad\.listen: is given in addition to tables",
    ),
    "no address": (
        VirtualClusterSettings(listeners={"a": ClusterListenerSettings()}),
        r"^clusters\.bad\.listeners\.a\.listen: ",
    ),
    "no protocol": (
        VirtualClusterSettings(listeners={"a": ClusterListenerSettings(listen="tls://x:1")}),
        r"^clusters\.bad\.listeners\.a\.listen: .* is not a security protocol",
    ),
    "one address": (
        VirtualClusterSettings(listeners={"a": FREE, "b": FREE}),
        r"^clusters\.bad\.listeners\.b\.listen: .* belongs to the listener of bad\.a",
    ),
    "a port in the range": (
        VirtualClusterSettings(listeners={"a": FREE, "b": replace(FREE, listen=":9100")}),
        r"^clusters\.bad\.listeners\.b\.node_ports: its ports 9100 meet 9093-9192 .* listener a;",
    ),
    "ranges that overlap": (
        VirtualClusterSettings(
            listeners={
                "a": replace(FREE, node_ports="9200-9210"),
                "b": replace(FREE, listen="0.0.0.0:9093", node_ports="9210-9220"),
            }
        ),
        r"listeners\.b\.node_ports: its ports 9210-9220 meet 9200-9210",
    ),
    "no certificate": (
        VirtualClusterSettings(listeners={"a": replace(FREE, listen=f"ssl://{HOST}:0")}),
        r"^clusters\.bad\.listeners\.a\.certificate_file: must be set",
    ),
    "names without TLS": (
        VirtualClusterSettings(
            listeners={"a": replace(FREE, listen=f"{HOST}:0", node_names=NAMES)}
        ),
        r"^clusters\.bad\.listeners\.a\.node_names: needs a listener with TLS",
    ),
    "no users": (
        VirtualClusterSettings(
            listeners={"a": FREE, "b": replace(FREE, listen=f"sasl_plaintext://{HOST}:9292")}
        ),
        r"^clusters\.bad\.users_file: must be set, because clients log in at sasl_plaintext",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_listeners_change_nothing(server: str, case: str) -> None:
    wrong, problem = BAD[case]
    good = listener_at()
    settings = ProxySettings(clusters={"good": cluster_with(server, a=good)}, insecure=True)
    with ServedProxy(settings=settings) as proxy:
        bad = {**settings.clusters, "bad": replace(wrong, upstream=server)}
        with pytest.raises(ConfigError, match=problem):
            proxy.do(proxy.proxy.apply(replace(settings, clusters=bad)))

        assert listed(good.address.text)


def test_settings_survive_json() -> None:
    """As workers get them."""
    cluster = VirtualClusterSettings(
        upstream="kafka:9092",
        listeners={"a": FREE, "b": replace(FREE, listen=":9200", advertise="edge", mechanisms="X")},
    )
    for settings in (
        ProxySettings(clusters={"one": cluster}),
        ProxySettings(listeners={"a": FREE}),
    ):
        assert ProxySettings.from_json(json.loads(json.dumps(asdict(settings)))) == settings


@contextmanager
def serving(*clusters: VirtualClusterSettings) -> Iterator[ServedProxy]:
    settings = ProxySettings(clusters={str(at): each for at, each in enumerate(clusters)})
    with ServedProxy(settings=settings) as proxy:
        yield proxy


def test_clusters_with_one_address_are_refused_at_the_start(server: str) -> None:
    listener = listener_at()
    with (
        pytest.raises(ConfigError, match=r"clusters\.1\.listeners\.b\.listen: .* listener of 0\.a"),
        serving(cluster_with(server, a=listener), cluster_with(server, b=listener)),
    ):
        pass
