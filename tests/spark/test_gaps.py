"""Reports of lost records: into a folder, or into a store that all hosts reach."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from rookery.direct.blockinglog import LoopThread
from rookery.errors import ConfigError
from rookery.log.read.rangeplan import Gap
from rookery.spark.read.gaps import handle_gaps
from rookery.spark.read.options import ReadOptions
from rookery.store.open import open_store

GAP = Gap("t" * 249, 3, 0, 5, "too old")


def options(target: str) -> ReadOptions:
    given = {"store": "file:///x", "subscribe": "t", "onDataLoss": "report", "gapsTo": target}
    return ReadOptions.of(given)


def test_gaps_are_stored_as_objects(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = options("memory:gaps-of-a-test")
    handle_gaps(chosen, [GAP])
    handle_gaps(chosen, [GAP])  # the same again does not count as another

    async def handled() -> None:
        handle_gaps(chosen, [GAP._replace(partition=4)])

    # A planner does it on its own loop.
    thread = LoopThread()
    thread.run(handled())
    thread.close()

    async def stored() -> list[dict[str, object]]:
        store = open_store("memory:gaps-of-a-test")
        return [json.loads(await store.read(file.key)) for file in await store.list()]

    assert [(gap["topic"], gap["partition"]) for gap in asyncio.run(stored())] == [
        (GAP.topic, 3), (GAP.topic, 4),
    ]  # fmt: skip
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", ["{}", "file://{}", "file:{}"])
def test_gaps_are_stored_as_files(form: str, tmp_path: Path) -> None:
    gap = GAP._replace(topic="t")
    handle_gaps(options(form.format(tmp_path / "gaps")), [gap, gap])
    [file] = (tmp_path / "gaps").iterdir()
    assert json.loads(file.read_text()) == gap._asdict()


def test_unusable_gaps_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="gapsTo="):
        handle_gaps(options(str(tmp_path / "file")), [GAP])
