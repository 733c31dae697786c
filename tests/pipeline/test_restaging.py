"""A recorded batch whose staged records expired before they were committed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rookery.client.client import Client
from rookery.direct import blockinglog
from rookery.direct.rowstager import abort
from rookery.errors import Gone
from rookery.pipeline.declaration.load import load
from rookery.pipeline.declaration.spec import Pipeline
from rookery.pipeline.manifests import Manifests
from rookery.pipeline.run import open_engine, run_pipeline
from rookery.testing.brokers import Host
from tests.pipeline.logs import Log, Message
from tests.pipeline.test_run import NOW, birds
from tests.pipeline.test_topics import DECLARED, consumed
from tests.tables.independent import rows_of

_GOOD = "silver topic good"


class _KilledError(Exception):
    pass


def _kill(step: str) -> None:
    if step == f"commit {_GOOD}":
        raise _KilledError


def _give_up(pipeline: Pipeline, _: Path) -> None:
    """Do as the caretaker does after a week."""
    last = Manifests(pipeline.state).last()
    assert last is not None
    log = blockinglog.open_shared(pipeline.source.place())
    staged = [int(file.path) for file in last.sinks[_GOOD].files]
    assert log.run(abort(log.log, staged)) == staged


def _delete(pipeline: Pipeline, folder: Path) -> None:
    async def delete() -> None:
        with Host(folder / "deleting", store=pipeline.source.store) as host:
            async with Client(host.bootstrap) as client:
                await client.admin.delete_topics(["good"])
            host.stop()

    asyncio.run(delete())


@pytest.mark.parametrize("lose", [_give_up, _delete])
def test_lost_staged_files_are_staged_again(
    spark: SparkSession, log: Log, tmp_path: Path, lose: Callable[[Pipeline, Path], None]
) -> None:
    path = tmp_path / "birds.toml"
    path.write_text(DECLARED.replace("{store}", log.store))
    pipeline = load(path)
    log.write("birds", birds(0, 20))
    run_pipeline(spark, pipeline, NOW)
    log.write("birds", [*birds(20, 20), Message(b"{broken")])
    with pytest.raises(_KilledError):
        run_pipeline(spark, pipeline, NOW, hook=_kill)
    lose(pipeline, tmp_path)
    log.write("birds", birds(40, 20))

    with pytest.raises(Gone):
        open_engine(pipeline)  # without Spark it cannot be mended
    run_pipeline(spark, pipeline, NOW)

    with Host(tmp_path / "again", store=log.store) as host:
        good = asyncio.run(consumed(host.bootstrap, "good"))
        bad = asyncio.run(consumed(host.bootstrap, "bad"))
        host.stop()
    # Deleting a topic deletes its records; records written later arrive all the same.
    first = 20 if lose is _delete else 0
    numbers = sorted(json.loads(record.value or b"")["id"] for record in good)
    assert numbers == list(range(first, 60))
    assert [record.value for record in bad] == [b"{broken"]
    assert len(rows_of(pipeline.sinks[0])) == 61
