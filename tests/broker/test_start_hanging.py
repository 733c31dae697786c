"""A start that waits for a server that takes connections and never answers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rookery.service.process import OK
from rookery.testing.broker import BrokerProcess
from rookery.testing.ports import HOST
from rookery.testing.wait import PATIENCE_SECONDS, wait_until

# No request gives up before the test does.
FOR_EVER_SECONDS = 3600


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server whose kernel accepts connections, and that reads nothing."""
    with socket.create_server((HOST, 0), backlog=100) as server:
        yield f"{HOST}:{server.getsockname()[1]}"


def hanging_store(silent: str, _folder: Path) -> tuple[list[str], str]:
    options = f"region=r&access_key_id=a&secret_access_key=b&deadline_ms={FOR_EVER_SECONDS * 1000}"
    return ["--store", f"s3://bucket?endpoint=http://{silent}&{options}"], "s3://bucket: no answer"


def hanging_etcd(silent: str, folder: Path) -> tuple[list[str], str]:
    cluster = f"etcd://{silent}/log?timeout={FOR_EVER_SECONDS}"
    flags = ["--store", f"file://{folder}/store", "--cluster", cluster]
    return flags, f"cluster log etcd://{silent}/log: no answer"


@pytest.mark.usefixtures("own_processes")
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("hanging", [hanging_store, hanging_etcd])
def test_first_signal_ends_a_start_that_gets_no_answer(
    silent: str, tmp_path: Path, hanging: Callable[[str, Path], tuple[list[str], str]], workers: int
) -> None:
    flags, cause = hanging(silent, tmp_path)
    broker = BrokerProcess(tmp_path / "data", workers=workers, flags=flags)
    with ExitStack() as stack:
        stack.push(broker)
        broker.launch()
        wait_until(broker.words, accepts=lambda words: words.count("still starting: ") >= workers)

        assert broker.stop(PATIENCE_SECONDS) == OK
    assert broker.words().count(cause) >= workers
    assert "could not close" not in broker.words()
