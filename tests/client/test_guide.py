"""The example and all code of the guide work on a real Kafka."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from rookery.client import Client
from rookery.testing.kafka import KafkaServer
from tests.client.conftest import DIRECT

# Programs of users make topics with names of their own, so they run once.
WAYS = (DIRECT,)
ROOT = Path(__file__).parents[2]
PIECES = re.findall(r"```python\n(.*?)```", (ROOT / "docs/guide/client.md").read_text(), re.DOTALL)


def test_the_guide_has_code() -> None:
    assert len(PIECES) >= 9


@pytest.mark.parametrize("number", range(len(PIECES)))
async def test_code_block_of_the_guide_runs(
    kafka: KafkaServer, client: Client, topic: str, number: int
) -> None:
    scope: dict[str, Any] = {}
    source = f"async def piece(client, topic, bootstrap):\n{indent(PIECES[number], '    ')}"
    exec(compile(source, f"client.md, piece {number}", "exec"), scope)  # noqa: S102 (our own page)
    await scope["piece"](client, topic, kafka.bootstrap)


def test_example_runs(kafka: KafkaServer) -> None:
    program = [sys.executable, str(ROOT / "examples/produce_and_read.py"), kafka.bootstrap, "birds"]
    for count in (1001, 2002):
        done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        counts = re.findall(r"partition \d: (\d+) records", done.stdout)
        assert sum(map(int, counts)) == count


def test_example_reports_an_invalid_address() -> None:
    program = [sys.executable, str(ROOT / "examples/produce_and_read.py"), "nowhere", "birds"]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "error: bootstrap: 'nowhere' is not host:port; write IPv6 as [::1]:9092\n"
    )
