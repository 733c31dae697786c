"""Retention on a directory that another broker wrote: held until confirmed, and never silent."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rookery.errors import ConfigError, ErrorCode
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.testing.wait import wait_until
from rookery.wire.messages.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.raw import batch, raw
from tests.logdir.made import FIRST_LOG, make_directory, message_batch
from tests.logdir.test_serve_upkeep import create, logs, serving

_TOPIC = 2
_SET = 0


def alter(broker: ServedBroker, topic: str, name: str, value: str) -> None:
    config = AlterableConfig(name=name, config_operation=_SET, value=value)
    resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=topic, configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    [answer] = ask(broker.bootstrap, INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    assert answer.error_code is ErrorCode.NONE


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if ".log" in path.name)


async def await_retention_round(broker: ServedBroker, folder: Path) -> None:
    """Return when retention has run: the records of a topic of our own are gone."""
    create(broker, "probe", retention_ms="1000")
    async with raw(broker) as client:
        await client.produce("probe", batch(b"old", time_ms=1_700_000_000_000))
    wait_until(lambda: logs(folder / "probe-0") == [1])


@pytest.mark.parametrize(
    "defaults",
    ["", "log.retention.ms=604800000", "log.segment.bytes=2097152", "log.retention.ms=-1"],
)
async def test_retention_of_an_opened_directory_waits_for_confirmation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, defaults: str
) -> None:
    folder = make_directory(tmp_path / "logs", {"ancient": [[b"from long ago"]]})
    with serving(folder, upkeep_interval_ms=20, defaults=defaults) as broker:
        await await_retention_round(broker, folder)
        assert not broker.broker.backing.traits.expires_offsets
    assert files(folder / "ancient-0") == [FIRST_LOG]
    if defaults != "log.retention.ms=-1":
        assert "1 segment of 1 partition (ancient-0 below offset 1" in caplog.text
        assert "--confirm-retention" in caplog.text


@pytest.mark.parametrize(
    "settings", [{"confirm_retention": True}, {"defaults": "log.retention.ms=86400000"}]
)
def test_confirmed_retention_renames_and_logs_what_it_deletes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: dict[str, Any]
) -> None:
    caplog.set_level("INFO")
    folder = make_directory(tmp_path / "logs", {"ancient": [[b"from long ago"]]})
    renamed = folder / "ancient-0" / f"{FIRST_LOG}.deleted"
    with serving(folder, upkeep_interval_ms=20, **settings) as broker:
        wait_until(renamed.exists)
        assert broker.broker.backing.traits.expires_offsets
    assert b"from long ago" in renamed.read_bytes()
    assert f"{folder / 'ancient-0' / FIRST_LOG} is renamed" in caplog.text
    # The next start removes it, as Kafka's does.
    with serving(folder, confirm_retention=True):
        assert not renamed.exists()
    assert f"deleted {renamed}" in caplog.text


def test_renamed_segments_are_deleted_after_the_delay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    folder = make_directory(tmp_path / "logs", {"ancient": [[b"from long ago"]]})
    settings = {"confirm_retention": True, "defaults": "log.segment.delete.delay.ms=1"}
    with serving(folder, upkeep_interval_ms=20, **settings):
        wait_until(lambda: files(folder / "ancient-0") == ["00000000000000000001.log"])
    assert f"deleted {folder / 'ancient-0' / FIRST_LOG}.deleted" in caplog.text


async def test_a_change_of_retention_confirms_it_for_the_topic(tmp_path: Path) -> None:
    topics = {"ancient": [[b"from long ago"]], "other": [[b"from long ago"]]}
    folder = make_directory(tmp_path / "logs", topics)
    with serving(folder, upkeep_interval_ms=20) as broker:
        alter(broker, "ancient", "retention.ms", "3600000")
        wait_until(lambda: logs(folder / "ancient-0") == [1])
        await await_retention_round(broker, folder)
    assert files(folder / "other-0") == [FIRST_LOG]


def test_opening_deletes_no_file_without_confirmation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_directory(tmp_path / "logs", {"t": [[b"a"]]})
    marked = folder / "t-0" / "00000000000000000007.log.deleted"
    marked.write_bytes(message_batch(b"h", 7))
    gone = folder / "u-0.00000000000040008000000000000009-delete"
    gone.mkdir()
    (gone / FIRST_LOG).write_bytes(message_batch(b"u"))
    with serving(folder):
        pass
    assert marked.exists()
    assert (gone / FIRST_LOG).exists()
    assert "2 files and folders that Kafka marked as deleted are kept" in caplog.text
    with serving(folder, confirm_retention=True):
        pass
    assert not marked.exists()
    assert not gone.exists()


def test_damaged_tail_is_truncated_and_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_directory(tmp_path / "logs", {"t": [[b"a", b"b"]]})
    log = folder / "t-0" / FIRST_LOG
    whole, end = log.read_bytes(), len(message_batch(b"a"))
    damaged = whole[:-1] + bytes([whole[-1] ^ 1])
    log.write_bytes(damaged)
    with serving(folder):
        pass
    assert log.read_bytes() == whole[:end]
    beside = folder / "t-0" / f"{FIRST_LOG}.cut-{end}"
    assert beside.read_bytes() == damaged[end:]
    assert str(beside) in caplog.text
    # It is not part of the log, and another cut at the same place does not replace it.
    log.write_bytes(whole[:end] + b"torn")
    with serving(folder):
        assert files(folder / "t-0") == [FIRST_LOG, beside.name, f"{beside.name}-2"]
    assert beside.read_bytes() == damaged[end:]


def test_trailing_zeros_are_truncated_and_not_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_directory(tmp_path / "logs", {"t": [[b"a"]]})
    log = folder / "t-0" / FIRST_LOG
    whole = log.read_bytes()
    log.write_bytes(whole + bytes(5000))
    with serving(folder):
        pass
    assert log.read_bytes() == whole
    assert files(folder / "t-0") == [FIRST_LOG]
    assert "5000 bytes" in caplog.text


def test_full_disk_prevents_the_truncation_of_a_damaged_tail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_directory(tmp_path / "logs", {"t": [[b"a"]]})
    log = folder / "t-0" / FIRST_LOG
    torn = log.read_bytes() + b"torn"
    log.write_bytes(torn)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(ConfigError, match=r"No space left.*--read-only"), serving(folder):
        pass
    assert log.read_bytes() == torn
    assert files(folder / "t-0") == [FIRST_LOG]
