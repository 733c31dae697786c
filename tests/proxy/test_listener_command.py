"""`rookery proxy` with several listeners: workers share their ports, and SIGHUP changes them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from rookery.testing.ports import HOST, free_ports
from rookery.testing.wait import wait_until
from tests.proxy.test_command import connections, get, node_addresses, run_proxy

HEAD = """
[proxy]
http_listen = "127.0.0.1:0"
refresh_interval_ms = 100

[proxy.clusters.one-two]
upstream = "{upstream}"
"""
LISTENER = """
[proxy.clusters.one-two.listeners.{name}]
listen = "127.0.0.1:{port}"
node-ports = "{node}-{node}"
"""


class ListenerFile:
    """A file with listeners on ports that stay the same."""

    def __init__(self, upstream: str, folder: Path) -> None:
        self.path = folder / "proxy.toml"
        self._upstream = upstream
        self._first = free_ports(6)

    def port(self, name: str) -> int:
        return self._first + 2 * "abc".index(name)

    def write(self, names: str) -> None:
        text = HEAD.format(upstream=self._upstream)
        for name in names:
            port = self.port(name)
            text += LISTENER.format(name=name, port=port, node=port + 1)
        self.path.write_text(text)


@pytest.fixture
def file(server: str, tmp_path: Path) -> ListenerFile:
    file = ListenerFile(server, tmp_path)
    file.write("ab")
    return file


def brokers(port: int) -> list[str]:
    return node_addresses(f"{HOST}:{port}")


@pytest.mark.parametrize("workers", [1, 2])
def test_listeners_are_reported_and_change(file: ListenerFile, workers: int) -> None:
    with run_proxy(str(file.path), "--workers", str(workers)) as (process, info):
        assert info["clusters"] == {"one_two": f"{HOST}:{file.port('a')}"}
        reported = info["listeners"]["one_two"]
        assert list(reported) == ["a", "b"]
        for name, each in reported.items():
            assert each["address"] == f"{HOST}:{file.port(name)}"
            assert list(each["nodes"].values()) == [f"{HOST}:{file.port(name) + 1}"]
            assert brokers(file.port(name)) == [f"{HOST}:{file.port(name) + 1}"]

        file.write("bc")
        os.kill(process.pid, signal.SIGHUP)
        wait_until(
            lambda: [reloads(http) for http in info["http"]] == [1] * workers, "all have reloaded"
        )
        for name in "bc":
            assert brokers(file.port(name)) == [f"{HOST}:{file.port(name) + 1}"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def reloads(http: str) -> int:
    lines = get(f"http://{http}/metrics")[1].splitlines()
    [line] = [each for each in lines if each.startswith("rookery_proxy_reloads_total ")]
    return int(line.split()[-1])


def test_workers_share_the_ports_of_every_listener(file: ListenerFile) -> None:
    with run_proxy(str(file.path), "--workers", "2") as (process, info):
        addresses = [f"{HOST}:{file.port(name) + step}" for name in "ab" for step in (0, 1)]
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


def test_settings_of_listeners_are_shown(file: ListenerFile) -> None:
    command = [sys.executable, "-m", "rookery.cli.main", "proxy", str(file.path), "--print-config"]

    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout

    tables = tomllib.loads(shown)["proxy"]["clusters"]["one-two"]["listeners"]
    assert tables["b"]["listen"] == f"{HOST}:{file.port('b')}"
    assert f'listen = "{HOST}:{file.port("b")}"  # {file.path}:' in shown


def test_bad_listener_is_named_with_its_line(file: ListenerFile) -> None:
    file.path.write_text(file.path.read_text().replace(str(file.port("b")), "nowhere", 1))
    command = [sys.executable, "-m", "rookery.cli.main", "proxy", str(file.path)]

    outcome = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)

    lines = file.path.read_text().splitlines()
    [line] = [at for at, text in enumerate(lines, 1) if "nowhere" in text]
    assert outcome.returncode == 2
    assert "proxy.clusters.one-two.listeners.b.listen" in outcome.stderr.replace("_", "-")
    assert f"{file.path}:{line}" in outcome.stderr
