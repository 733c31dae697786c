"""`rookery pipeline`: a killed run, its repetition, and all other commands."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rookery.cli.main import main
from rookery.cli.pipelines import end_on_signals
from rookery.pipeline.declaration.load import load
from rookery.pipeline.run import BatchPace
from rookery.testing.wait import wait_until
from tests.pipeline.logs import Log, Message
from tests.tables.independent import rows_of

DECLARED = """
name = "birds"
[source]
store = "{store}"
topics = ["birds"]
max-offsets-per-trigger = 40
[topics.birds]
schema = "id long, name string"
[[sinks]]
layer = "bronze"
format = "parquet"
location = "bronze"
[[sinks]]
layer = "silver"
format = "iceberg"
location = "silver"
[[sinks]]
layer = "dead-letters"
format = "parquet"
location = "dead"
[[gold]]
name = "total"
location = "gold"
sql = "SELECT count(*) AS birds FROM silver"
"""
RECORDS = 800
FLAGS = (
    *("--available-now", "--json", "--master", "local[2]"),
    *("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"),
)


def declared(folder: Path, log: Log) -> Path:
    path = folder / "birds.toml"
    path.write_text(DECLARED.replace("{store}", log.store))
    return path


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rookery.cli.main", "pipeline", *arguments]


def _killed_after_batches(path: Path, manifests: Path) -> None:
    running = subprocess.Popen(
        command("run", str(path), *FLAGS), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_until(
        lambda: len(list(manifests.glob("*.json"))) >= 3 or running.poll() is not None,
        "three batches",
        seconds=300,
    )
    assert running.poll() is None, "it ended by itself"
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    assert len(list(manifests.glob("*.json"))) < RECORDS // 40


@pytest.mark.usefixtures("own_spark")
@pytest.mark.timeout(900)
def test_killed_run_continues(log: Log, tmp_path: Path, capsys: Any) -> None:
    values = [json.dumps({"id": n, "name": "rook"}).encode() for n in range(RECORDS)]
    values[13] = values[77] = b"{broken"
    log.write("birds", [Message(value) for value in values])
    path = declared(tmp_path, log)
    plan = json.loads(_plan(path, "--json"))
    assert plan["waiting records"] == {"birds-0": RECORDS // 2, "birds-1": RECORDS // 2}

    _killed_after_batches(path, tmp_path / ".rookery/birds/batches")
    done = subprocess.run(
        command("run", str(path), *FLAGS), capture_output=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    answer = json.loads(done.stdout)
    assert answer["gold"] == ["total"]

    pipeline = load(path)
    written = Counter((row[3], row[4], _digest(row[1])) for row in rows_of(pipeline.sinks[0]))
    assert written == Counter((n % 2, n // 2, _digest(value)) for n, value in enumerate(values))
    good = sorted(int(str(row[0])) for row in rows_of(pipeline.sinks[1]))
    assert good == [n for n in range(RECORDS) if n not in (13, 77)]
    assert len(rows_of(pipeline.sinks[2])) == 2
    assert rows_of(pipeline.gold[0].table()) == [(RECORDS - 2,)]
    _ask_for_the_rest(path, tmp_path, capsys)


@pytest.mark.usefixtures("own_spark")
@pytest.mark.timeout(600)
def test_terminated_run_ends_after_its_batch(log: Log, tmp_path: Path) -> None:
    log.write("birds", [Message(b'{"id": 1, "name": "rook"}')])
    path = declared(tmp_path, log)
    flags = ["--interval", "0.2", *FLAGS[1:]]
    told = tmp_path / ".rookery/birds/metrics.jsonl"
    with subprocess.Popen(
        command("run", str(path), *flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        wait_until(
            lambda: told.exists() or running.poll() is not None, "the first batch", seconds=300
        )
        assert running.poll() is None, "it ended by itself"
        running.send_signal(signal.SIGTERM)
        answer, words = running.communicate(timeout=300)
    assert running.returncode == 0, words.decode()
    assert json.loads(answer) == {"batches": 1, "records": 1, "gold": ["total"]}
    assert b"ending after this batch" in words
    assert rows_of(load(path).gold[0].table()) == [(1,)]


def test_second_interrupt_ends_the_run_immediately() -> None:
    pace, before = BatchPace(), signal.getsignal(signal.SIGINT)
    with end_on_signals(pace):
        os.kill(os.getpid(), signal.SIGINT)
        assert pace.end.wait(30)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before


def _ask_for_the_rest(path: Path, folder: Path, capsys: Any) -> None:
    page = folder / "birds.html"
    assert main(["pipeline", "report", str(path), "--html", str(page), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lag"] == 0
    assert "<svg" in page.read_text()
    assert main(["pipeline", "report", str(path), "--html", str(page)]) == 0
    told = capsys.readouterr().out
    assert "rows, silver: " in told
    assert "records not read then: 0\n" in told
    assert told.endswith(f"written: {page}\n")
    assert f"gold: parquet {folder / 'gold'}" in _plan(path)
    assert main(["pipeline", "upkeep", str(path), "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done[str(folder / "silver")]["files_compacted"] > 0
    assert len(rows_of(load(path).sinks[1])) == RECORDS - 2
    assert main(["pipeline", "export", str(path), "--to", str(folder / "project")]) == 0
    compile((folder / "project/transformations/tables.py").read_text(), "tables.py", "exec")
    assert (
        "CREATE MATERIALIZED VIEW total AS"
        in (folder / "project/transformations/total.sql").read_text()
    )


def _plan(path: Path, *flags: str) -> str:
    """Plan in a process of its own: the Spark of this one may run with other settings."""
    planned = subprocess.run(
        command("plan", str(path), *flags), capture_output=True, text=True, timeout=600, check=False
    )
    assert planned.returncode == 0, planned.stderr
    return planned.stdout


def _digest(data: object) -> str:
    assert isinstance(data, bytes)
    return hashlib.sha256(data).hexdigest()


def test_invalid_file_is_reported_without_spark(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "birds.toml"
    path.write_text("[source]\ntopics = []\n")

    assert main(["pipeline", "run", str(path)]) == 2
    assert "birds.toml" in capsys.readouterr().err
