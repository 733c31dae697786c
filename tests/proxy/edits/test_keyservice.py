"""Keys from the key service of another package."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest
from confluent_kafka import Producer

from rookery.broker.settings import BrokerSettings
from rookery.clock import SystemRandom
from rookery.errors import ConfigError, Corrupt
from rookery.proxy.edits import keyservice
from rookery.proxy.edits.envelope import DataKey, read_head
from rookery.proxy.edits.keyservice import open_key_service
from rookery.proxy.filters.encryption import Encryption
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.servedproxy import ServedProxy
from tests.proxy.filters.conftest import read


class Vault:
    """Wraps data keys in a table of its own."""

    wrapped: dict[bytes, bytes] = {}  # noqa: RUF012 (all objects are one service)
    calls: list[str] = []  # noqa: RUF012

    def __init__(self, options: dict[str, Any]) -> None:
        self._name = str(options["name"])

    async def create(self) -> DataKey:
        self.calls.append("create")
        key = SystemRandom().token(32)
        name = b"%d" % len(self.wrapped)
        self.wrapped[name] = key
        return DataKey(self._name, name, key)

    async def unwrap(self, name: str, wrapped: bytes) -> bytes:
        self.calls.append("unwrap")
        if wrapped not in self.wrapped:
            raise Corrupt(f"there is no key {name}")
        return self.wrapped[wrapped]

    async def is_current(self, name: str) -> bool:
        return name == self._name


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("vault", f"{__name__}:Vault", keyservice.GROUP)
    monkeypatch.setattr(keyservice, "entry_points", lambda group: [point])
    monkeypatch.setattr(Vault, "wrapped", {})
    monkeypatch.setattr(Vault, "calls", [])


def test_service_of_a_package_wraps_data_keys(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("upstream")
    options = {"key_service": "vault", "key_service_options": {"name": "master"}}
    with (
        ServedBroker(folder / "data", BrokerSettings(durability="os")) as broker,
        ServedProxy(broker.bootstrap, filters=[Encryption(options)]) as first,
        ServedProxy(broker.bootstrap, filters=[Encryption(options)]) as second,
    ):
        for proxy in (first, second):
            producer = Producer({"bootstrap.servers": proxy.bootstrap})
            for _ in range(10):
                producer.produce("t", b"secret")
            assert producer.flush(20) == 0
        seen = [message.value() for message in read(second.bootstrap, "t", 20)]
        stored = [message.value() or b"" for message in read(broker.bootstrap, "t", 20)]

    assert seen == [b"secret"] * 20
    assert {read_head(value)[:2] for value in stored} == {("master", b"0"), ("master", b"1")}
    # Each key is unwrapped once, however many records it has encrypted.
    assert Vault.calls == ["create", "create", "unwrap", "unwrap"]


def test_unknown_service_is_refused_with_those_that_are_installed() -> None:
    with pytest.raises(ConfigError, match="no key service 'other'; installed: vault"):
        open_key_service({"key_service": "other"}, SystemRandom())
