"""A Connect server finds source and sink; `session` names the settings that it lacks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rookery.spark.sparksession import settings_for
from rookery.testing.broker import BrokerProcess
from tests.spark.connectserver import LOG, connect_server
from tests.spark.topics import fill_topic

_SOCKETS = "spark.python.unix.domain.socket.enabled"


@pytest.mark.usefixtures("own_spark")
@pytest.mark.timeout(600)
def test_source_view_stream_and_sink_work_over_connect(tmp_path: Path) -> None:
    values = [f"value {number:03}" for number in range(300)]
    data = tmp_path / "broker"
    with BrokerProcess(data) as broker:
        fill_topic(broker.bootstrap, "birds", [value.encode() for value in values])
    settings = settings_for("local[2]")
    del settings[_SOCKETS]

    with connect_server(tmp_path, settings) as remote:
        job = [sys.executable, "-m", "tests.spark.connectjob", remote, str(data), "birds"]
        done = subprocess.run(
            [*job, str(tmp_path)], capture_output=True, text=True, timeout=540, check=False
        )

    log = (tmp_path / LOG).read_text(errors="replace")
    assert done.returncode == 0, done.stdout + done.stderr + log[-8000:]
    answer: dict[str, Any] = json.loads((tmp_path / "answer.json").read_text())
    assert answer["table"] == values
    assert answer["view"] == values[1::2]
    assert answer["stream"] == values
    assert answer["written"] == values
    assert answer["again"] == [300, 301]
    # Spark plans a view of the source once; what is made of a table of its catalog, each time.
    assert answer["views"] == {
        "written_table": [301, 302],
        "of_table": [301, 302],
        "of_frame": [301, 302],
        "of_source": [301, 301],
    }
    assert answer["streamed"] == values
    assert answer["decoded"] == values
    good, bad = answer["json"]
    assert good == [7, "2026-11-15", None]
    assert bad[:2] == [None, "None"]
    assert "not JSON" in bad[2]
    assert answer["time zone"] == "UTC"
    [warning] = answer["warnings"]
    assert f"{remote} lacks settings" in warning
    assert f"--conf {_SOCKETS}=true" in warning
    assert "daemon" not in warning
