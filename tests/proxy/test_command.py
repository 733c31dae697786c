"""`rookery proxy` as a process: a file of settings, health, metrics and an orderly stop."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka.admin import AdminClient

from rookery.testing.ports import free_port
from rookery.testing.wait import wait_until

FILE = """
[proxy]
http_listen = "127.0.0.1:{http}"
refresh_interval_ms = 100

[proxy.clusters.plain]
upstream = "{upstream}"
listen = "127.0.0.1:{plain}"
node_ports = "{plain_node}-{plain_node}"

[proxy.clusters.tenant]
upstream = "{upstream}"
listen = "127.0.0.1:{tenant}"
node_ports = "{tenant_node}-{tenant_node}"
filters = ["names"]

[proxy.filter.names]
type = "topic_prefix"
options = {{prefix = "tenant."}}
"""


@contextmanager
def run_proxy(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    command = [sys.executable, "-m", "rookery.cli.main", "proxy", "--json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            if process.poll() is None:
                process.kill()


def get(url: str) -> tuple[int, str]:
    try:
        with urlopen(url, timeout=10) as answer:  # noqa: S310 (our own server)
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.fixture(scope="module")
def file(server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("proxy") / "proxy.toml"
    names = ("http", "plain", "plain_node", "tenant", "tenant_node")
    ports = {name: free_port() for name in names}
    path.write_text(FILE.format(upstream=server, **ports))
    return path


def test_file_describes_several_virtual_clusters(file: Path) -> None:
    with run_proxy(str(file)) as (process, info):
        seen = {
            name: set(AdminClient({"bootstrap.servers": address}).list_topics(timeout=20).topics)
            for name, address in info["clusters"].items()
        }
        assert list(seen) == ["plain", "tenant"]
        assert {name.removeprefix("tenant.") for name in seen["plain"]} >= seen["tenant"]
        assert get(f"http://{info['http'][0]}/health/ready")[0] == 200
        assert "rookery_proxy_nodes_known 2" in get(f"http://{info['http'][0]}/metrics")[1]
        process.send_signal(signal.SIGTERM)

        assert process.wait(20) == 0


def test_workers_share_all_ports(file: Path) -> None:
    with run_proxy(str(file), "--workers", "2", "--http-listen", "127.0.0.1:0") as (process, info):
        addresses = [info["clusters"]["plain"], *node_addresses(info["clusters"]["plain"])]
        assert len(addresses) == 2
        assert len(info["http"]) == 2
        for address in addresses:
            before = connections(info["http"])

            def is_shared(address: str = address, before: list[int] = before) -> bool:
                admin = AdminClient({"bootstrap.servers": address})
                assert admin.list_topics(timeout=20).brokers
                after = connections(info["http"])
                return all(now > then for now, then in zip(after, before, strict=True))

            # The system chooses the worker of each connection.
            wait_until(is_shared, "clients of both workers")
        process.send_signal(signal.SIGTERM)

        assert process.wait(20) == 0


def node_addresses(bootstrap: str) -> list[str]:
    brokers = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).brokers
    return [f"{broker.host}:{broker.port}" for broker in brokers.values()]


def connections(https: list[str]) -> list[int]:
    """Return how many clients each worker has had."""
    return [
        int(line.split()[-1])
        for http in https
        for line in get(f"http://{http}/metrics")[1].splitlines()
        if line.startswith("rookery_net_connections_total")
    ]


def test_settings_are_shown(file: Path) -> None:
    command = [sys.executable, "-m", "rookery.cli.main", "proxy", str(file), "--print-config"]

    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout

    assert 'options = {"prefix" = "tenant."}' in shown
    assert "[proxy.clusters.tenant]" in shown


def test_health_reports_an_upstream_that_is_away() -> None:
    http, listen = free_port(), free_port()
    with run_proxy(
        "--upstream", f"127.0.0.1:{free_port()}",
        "--listen", f"127.0.0.1:{listen}",
        "--http-listen", f"127.0.0.1:{http}",
    ) as (_, info):  # fmt: skip
        code, text = get(f"http://{info['http'][0]}/health/ready")

        assert code == 503
        assert "upstream default" in text
        assert "cannot connect" in text
        # A restart would not help.
        assert get(f"http://{info['http'][0]}/health/live")[0] == 200


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("flag", ["--listen", "--http-listen"])
def test_open_ports_beyond_loopback_are_refused(flag: str, workers: str) -> None:
    command = [sys.executable, "-m", "rookery.cli.main", "proxy", "--workers", workers]
    command += ["--upstream", "127.0.0.1:1", flag, "0.0.0.0:0"]

    outcome = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)

    assert outcome.returncode == 2
    assert "--insecure" in outcome.stderr


def test_port_without_a_host_is_of_this_host_alone() -> None:
    port = free_port()
    upstream = f"127.0.0.1:{free_port()}"
    with run_proxy("--upstream", upstream, "--listen", f":{port}", "--http-listen", "") as (
        _,
        info,
    ):
        assert info["clusters"] == {"default": f"127.0.0.1:{port}"}


def test_upstream_must_be_named() -> None:
    command = [sys.executable, "-m", "rookery.cli.main", "proxy"]

    outcome = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)

    assert outcome.returncode == 2
    assert "upstream: name a broker of the Kafka cluster" in outcome.stderr
