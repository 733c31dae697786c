"""SIGHUP to `rookery proxy`: the file is read again, by one process and by several."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.broker.settings import BrokerSettings
from rookery.testing.ports import HOST, free_ports
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.wait import wait_until
from tests.proxy.listings import topics
from tests.proxy.test_command import get

HEAD = """
[proxy]
http_listen = "127.0.0.1:{http}"
log_level = "info"
drain_timeout_ms = {drain}
"""
CLUSTER = """
[proxy.clusters.{name}]
upstream = "{upstream}"
listen = "127.0.0.1:{port}"
node_ports = "{node}-{node}"
filters = ["{filter}"]
"""
FILTER = """
[proxy.filter.{name}]
type = "topic_prefix"
options = {{prefix = "{name}."}}
"""


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("upstream")
    with ServedBroker(folder / "data", BrokerSettings(durability="os")) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic("a.one"), NewTopic("b.two")]).values():
            future.result(20)
        yield broker.bootstrap


class RunningProxy:
    """A proxy process with a file that changes."""

    def __init__(self, upstream: str, folder: Path, workers: int) -> None:
        first = free_ports(8)
        self.port, self.other = first, first + 2
        self.log = folder / "log"
        self._upstream = upstream
        self._http = first + 4
        self.file = folder / "proxy.toml"
        self._command = [sys.executable, "-m", "rookery.cli.main", "proxy", str(self.file)]
        self._command += ["--workers", str(workers), "--json"]
        self.http: list[str] = []

    def write(
        self, *, prefix: str, has_other: bool = False, drain: int = 2000, more: str = ""
    ) -> None:
        text = HEAD.format(http=self._http, drain=drain)
        for name, port in (("one", self.port), ("other", self.other))[: 1 + has_other]:
            text += CLUSTER.format(
                name=name, upstream=self._upstream, port=port, node=port + 1, filter=prefix
            )
        self.file.write_text(text + more + FILTER.format(name=prefix))

    @contextmanager
    def run(self) -> Iterator[subprocess.Popen[str]]:
        with (
            self.log.open("w") as log,
            subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, text=True
            ) as process,
        ):
            assert process.stdout is not None
            try:
                report: dict[str, Any] = json.loads(process.stdout.readline())
                self.http = report["http"]
                yield process
                process.send_signal(signal.SIGTERM)
                assert process.wait(20) == 0
            finally:
                if process.poll() is None:
                    process.kill()

    def numbers(self, metric: str) -> list[int]:
        """Return a metric of each worker."""
        return [
            int(line.split()[-1])
            for http in self.http
            for line in get(f"http://{http}/metrics")[1].splitlines()
            if line.startswith(f"{metric} ")
        ]

    def has(self, metric: str, value: int) -> bool:
        """Return whether a metric has a value in all workers."""
        return {value} == {*self.numbers(metric)}

    def health(self) -> list[tuple[int, dict[str, Any]]]:
        answers = [get(f"http://{http}/health/ready") for http in self.http]
        return [(status, json.loads(text)) for status, text in answers]


@pytest.mark.parametrize("workers", [1, 2])
def test_hangup_reads_the_file_again(upstream: str, tmp_path: Path, workers: int) -> None:
    proxy = RunningProxy(upstream, tmp_path, workers)
    proxy.write(prefix="a")
    with proxy.run() as process:
        assert topics(f"{HOST}:{proxy.port}") == {"one"}
        proxy.write(prefix="b", has_other=True, drain=3000)
        os.kill(process.pid, signal.SIGHUP)
        wait_until(lambda: proxy.numbers("rookery_proxy_reloads_total") == [1] * workers)

        assert topics(f"{HOST}:{proxy.port}") == {"two"}
        assert topics(f"{HOST}:{proxy.other}") == {"two"}
        assert "added other; changed one" in proxy.log.read_text()
        assert "need a restart: drain-timeout-ms" in proxy.log.read_text()
        proxy.write(prefix="a")
        os.kill(process.pid, signal.SIGHUP)
        wait_until(lambda: proxy.numbers("rookery_proxy_reloads_total") == [2] * workers)

        assert topics(f"{HOST}:{proxy.port}") == {"one"}
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, proxy.other), 20)


BAD = {
    '[proxy.clusters.bad]\nupstream = "x:1"\nlisten = "nowhere"\n': ("bad.listen", 3),
    '[proxy.clusters.bad]\nupsteam = "x:1"\n': ("did you mean upstream?", 2),
    "[proxy.clusters.bad\n": ("not TOML", 1),
    # only the proxy itself knows its filters
    f'[proxy.clusters.bad]\nlisten = "{HOST}:0"\nupstream = "x:1"\nfilters = ["none"]\n': (
        "proxy.clusters.bad.filters: none: there is no filter",
        4,
    ),
}
"""Bad ends of a file: what the error says, and the line in question."""


@pytest.mark.parametrize("workers", [1, 2])
def test_bad_file_keeps_the_old_settings(upstream: str, tmp_path: Path, workers: int) -> None:
    proxy = RunningProxy(upstream, tmp_path, workers)
    proxy.write(prefix="a")
    with proxy.run() as process:
        for count, (more, (words, line)) in enumerate(BAD.items(), 1):
            proxy.write(prefix="b", more=more)
            os.kill(process.pid, signal.SIGHUP)
            wait_until(partial(proxy.has, "rookery_proxy_reloads_refused_total", count))

            assert topics(f"{HOST}:{proxy.port}") == {"one"}
            assert proxy.numbers("rookery_proxy_settings_stale") == [1] * workers
            lines = proxy.file.read_text().splitlines()
            [place] = [
                at for at, text in enumerate(lines) if text.startswith("[proxy.clusters.bad")
            ]
            for status, report in proxy.health():
                assert status == 200
                warning = report["warnings"]["settings"]
                assert "the previous settings stay in use" in warning
                assert words in warning
                assert f"proxy.toml:{place + line}" in warning or "not TOML" in words
            logged = [each for each in proxy.log.read_text().splitlines() if "not reloaded" in each]
            assert len(logged) == count
            assert words in logged[-1]
        proxy.write(prefix="b")
        os.kill(process.pid, signal.SIGHUP)
        wait_until(lambda: proxy.numbers("rookery_proxy_settings_stale") == [0] * workers)

        assert topics(f"{HOST}:{proxy.port}") == {"two"}
        assert [report for _, report in proxy.health()] == [{"ok": True, "problems": {}}] * workers
