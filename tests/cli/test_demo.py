"""`rookery demo`: its verdicts and its output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from rich.console import Console

from rookery.cli.demo import tables
from rookery.cli.demo.audit import ReceivedRecords, SentRecords, compare
from rookery.cli.demo.demofolder import run_in_folder
from rookery.errors import Unavailable
from rookery.records.recordcodec import Record
from tests.cli.running import command


def _values(sent: SentRecords, count: int) -> list[Record]:
    return [Record(None, sent.value(b"text")) for _ in range(count)]


def _judge(order: list[int], *, spoil: bool = False) -> tuple[int, int, bool]:
    """Send three records, get these back; return lost, doubled, and whether all is well."""
    sent, received = SentRecords(), ReceivedRecords()
    records = _values(sent, 3)
    got = [records[number] for number in order]
    if spoil:
        got[0] = Record(None, (got[0].value or b"")[:-1] + b"!")
    received.take(got)
    verdict = compare(0, sent, received)
    return verdict.lost, verdict.duplicated, verdict.is_sound


@pytest.mark.parametrize(
    ("order", "lost", "doubled"),
    [
        ([0, 1, 2], 0, 0),
        ([0, 1], 1, 0),
        ([1, 2], 1, 0),
        ([0, 2], 1, 0),
        ([], 3, 0),
        ([0, 1, 1, 2], 0, 1),
        ([0, 1, 2, 0, 1, 2], 0, 3),
    ],
)
def test_demo_verdict_counts_lost_and_duplicated_records(
    order: list[int], lost: int, doubled: int
) -> None:
    assert _judge(order) == (lost, doubled, order == [0, 1, 2])


def test_demo_verdict_reports_reordered_and_changed_records() -> None:
    assert not _judge([0, 2, 1])[2]
    assert not _judge([0, 1, 2], spoil=True)[2]


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(folder)}


@pytest.mark.usefixtures("own_victim")
def test_proxy_demo_shows_what_clients_saw(tmp_path: Path) -> None:
    done = subprocess.run(
        command("demo", "--proxy", "--records", "20k", "--json"),
        capture_output=True,
        env=_environment(tmp_path),
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr.decode()
    said = json.loads(done.stdout)
    assert said["sound"] is True
    proxy = said["proxy"]
    assert proxy["topic_in_the_upstream"] == "tenant.demo"
    assert (proxy["sent"], proxy["acknowledged"], proxy["read"]) == (20_000,) * 3
    assert (proxy["doubled"], proxy["missing"]) == (0, 0)
    assert proxy["audit_lines"] > 0
    assert said["crash"]["down_seconds"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("own_victim")
def test_demo_loses_no_record_and_removes_its_files(tmp_path: Path) -> None:
    done = subprocess.run(
        command("demo", "--records", "20k", "--json"),
        capture_output=True,
        env=_environment(tmp_path),
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr.decode()
    said = json.loads(done.stdout)
    assert said["sound"] is True
    assert sum(row["received"] for row in said["partitions"]) == 20_000
    assert said["crash"]["down_seconds"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("own_victim")
def test_demo_prints_a_readable_summary(tmp_path: Path) -> None:
    done = subprocess.run(
        command("demo", "--records", "5k", "--durability", "os"),
        capture_output=True,
        text=True,
        env=_environment(tmp_path),
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "kill -9" in done.stdout
    assert "Nothing lost, nothing doubled" in done.stdout


def test_pipeline_that_dies_is_reported_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "import sys; sys.exit('there is no Java')"
    monkeypatch.setattr(tables, "_command", lambda *_: [sys.executable, "-c", words])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    with pytest.raises(Unavailable, match="there is no Java"):
        run_in_folder(lambda folder: tables._run_and_kill(folder, Console(quiet=True)))

    assert list(tmp_path.iterdir()) == []


def test_secure_demo_refuses_a_stranger_and_admits_a_user(tmp_path: Path) -> None:
    done = subprocess.run(
        command("demo", "--secure", "--json"),
        capture_output=True,
        check=False,
        timeout=60,
        env=_environment(tmp_path),
    )

    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    steps = json.loads(done.stdout)
    assert len(steps) == 5
    assert all(step["is_met"] for step in steps)
    assert "AUTHORIZATION_FAILED" in steps[1]["observation"]
    line = json.loads(steps[4]["observation"])
    assert (line["principal"], line["host"], line["decision"]) == (
        "User:alice",
        "127.0.0.1",
        "denied",
    )
    # A producer asks for the topic first.
    assert (line["operation"], line["resource"]["name"]) == ("DESCRIBE", "birds")
    assert list(tmp_path.iterdir()) == []
