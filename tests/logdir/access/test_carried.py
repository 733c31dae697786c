"""Access rules, users and quotas of a real Kafka: imported, served in place, and exported."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.broker.settings import BrokerSettings
from tests.logdir.access.conftest import StoppedKafka, guarded
from tests.logdir.access.sight import EXPECTED, check_logins, look_at_access
from tests.logdir.test_import import answer, imported


@pytest.fixture(autouse=True)
def _without_other_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROOKERY_CONFIG", raising=False)


def test_import_brings_rules_users_and_quotas(stopped: StoppedKafka, tmp_path: Path) -> None:
    report = answer(imported(stopped.data, tmp_path / "data"))
    again = answer(imported(stopped.data, tmp_path / "data"))

    assert report["left_out"] == []
    assert again["access_changes"] == 0
    with guarded(tmp_path / "data", BrokerSettings(durability="os")) as (broker, address):
        assert look_at_access(broker.bootstrap) == EXPECTED
        check_logins(address)


def test_served_directory_has_rules_users_and_quotas(stopped: StoppedKafka, tmp_path: Path) -> None:
    folder = stopped.copy(tmp_path / "logs")
    settings = BrokerSettings(log_dir=str(folder), durability="os")
    with guarded(tmp_path / "unused", settings) as (broker, address):
        assert look_at_access(broker.bootstrap) == EXPECTED
        check_logins(address)
