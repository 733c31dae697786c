"""Tools that share one Java: each has its own input, output and exit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.errors import ConfigError, Unavailable
from rookery.testing.java import Java
from rookery.testing.kafka import KafkaServer
from rookery.testing.ports import HOST, free_port
from rookery.testing.tools import ToolHost

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolHost]:
    with ToolHost(Java.find(), tmp_path_factory.mktemp("tools")) as tools:
        yield tools


def test_tool_that_returns_gives_status_0(host: ToolHost) -> None:
    done = host.tool("kafka-storage", "random-uuid")

    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.strip()) == 22


def test_tool_that_exits_gives_its_status(host: ToolHost) -> None:
    done = host.tool("kafka-topics", "--list")

    assert done.returncode == 1
    assert "--bootstrap-server must be specified" in done.stderr


def test_output_of_each_tool_is_separate(host: ToolHost) -> None:
    first, second = (host.tool("kafka-storage", "random-uuid").stdout for _ in range(2))

    assert first != second


def test_a_tool_reads_its_input(host: ToolHost, kafka: KafkaServer) -> None:
    place = ("--bootstrap-server", kafka.bootstrap, "--topic", "tool-input")

    host.tool("kafka-console-producer", *place, text="grün\nblau\n")
    read = host.tool("kafka-console-consumer", *place, "--from-beginning", "--max-messages", "2")

    assert read.stdout.splitlines() == ["grün", "blau"]


def test_hanging_tool_is_killed(host: ToolHost) -> None:
    nobody = f"{HOST}:{free_port()}"

    with pytest.raises(Unavailable, match=r"kafka-console-consumer .* within 0\.5 s"):
        host.tool(
            *("kafka-console-consumer", "--bootstrap-server", nobody, "--topic", "none"),
            timeout=0.5,
        )

    assert host.tool("kafka-storage", "random-uuid").returncode == 0


def test_tool_that_ends_its_jvm_is_reported(host: ToolHost) -> None:
    with pytest.raises(Unavailable, match="kafka-cluster ended its Java"):
        host.tool("kafka-cluster", "--no-such-option")

    assert host.tool("kafka-storage", "random-uuid").returncode == 0


def test_program_that_does_not_compile_is_reported(tmp_path: Path) -> None:
    source = tmp_path / "Wrong.java"
    source.write_text("public final class Wrong { int one = two; }")

    with pytest.raises(ConfigError, match=r"(?s)Wrong.java could not be compiled.*symbol.*two"):
        Java.find().compile(source, tmp_path)
