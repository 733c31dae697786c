"""Several processes with several listeners: clients learn the addresses of their own listener."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from rookery.testing.broker import BrokerProcess
from rookery.testing.ports import HOST, free_ports
from rookery.testing.wait import wait_until
from tests.broker.secured import PASSWORD, USER

Config = dict[str, str | int | float | bool]

WORKERS = 2
TOML = """
[broker]
durability = "os"
workers = {workers}
[broker.listeners.inner]
listen = "{host}:{inner}"
[broker.listeners.outer]
listen = "sasl_plaintext://{host}:{outer}"
"""


class TwoListeners(BrokerProcess):
    """Workers with a listener for everyone and one for logins."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "data", workers=WORKERS)
        # Each listener has a shared port, and then one for each worker.
        count = WORKERS + 1
        self.port = free_ports(2 * count)
        self.outer = self.port + count
        self._config = folder / "broker.toml"
        self._config.write_text(
            TOML.format(workers=WORKERS, host=HOST, inner=self.port, outer=self.outer), "utf-8"
        )

    def command(self) -> list[str]:
        """Return the command line; the listeners are in the file."""
        return [
            *(sys.executable, "-m", "rookery.cli.main", "broker", "--json"),
            *("--config", str(self._config), "--data", str(self.folder)),
            *("--http-listen", f"{HOST}:0"),
        ]


@pytest.fixture
def two(own_processes: None, tmp_path: Path) -> Iterator[TwoListeners]:
    with TwoListeners(tmp_path) as broker:
        yield broker


def add_user(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
    for result in admin.alter_user_scram_credentials([change]).values():
        result.result(20)


def ports_seen(config: Config) -> set[int]:
    """Return the ports of the brokers that a new client learns of."""
    admin = AdminClient({**config, "log_level": 0})
    return {broker.port for broker in admin.list_topics(timeout=20).brokers.values()}


def test_each_listener_has_the_addresses_of_all_workers(two: TwoListeners) -> None:
    inner: Config = {"bootstrap.servers": two.bootstrap}
    outer: Config = {
        "bootstrap.servers": f"{HOST}:{two.outer}", "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": USER, "sasl.password": PASSWORD,
    }  # fmt: skip
    add_user(two.bootstrap)
    check_listener(inner, two.port)
    check_listener(outer, two.outer)


def check_listener(config: Config, shared: int) -> None:
    own = {shared + number for number in range(1, WORKERS + 1)}
    # Any worker can answer on the shared port; soon each of them knows the other.
    wait_until(lambda: ports_seen(config), accepts=lambda seen: seen == own)
    errors: list[object] = []
    producer = Producer({**config, "log_level": 0})
    for _ in range(4):
        producer.produce(f"birds-{shared}", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0
    assert errors == [None] * 4
