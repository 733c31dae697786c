"""What the commands of pipelines share."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.cli.pipelines import metrics_path
from rookery.pipeline.declaration.spec import Pipeline, Sink, Source


@pytest.mark.parametrize("name", ["state", "my state"])
def test_figures_are_stored_next_to_a_state_in_a_folder(tmp_path: Path, name: str) -> None:
    assert metrics_path(pipeline(str(tmp_path / name))) == tmp_path / name / "metrics.jsonl"


def test_figures_of_a_state_in_a_store_are_stored_in_the_working_folder() -> None:
    assert metrics_path(pipeline("s3://bucket/state")) == Path(".rookery/birds/metrics.jsonl")


def pipeline(state: str) -> Pipeline:
    sinks = (
        Sink(layer="bronze", format="parquet", location="/lake/bronze"),
        Sink(layer="dead-letters", format="parquet", location="/lake/dead"),
    )
    return Pipeline(
        name="birds", state=state, source=Source(topics=("birds",), data="/nowhere"), sinks=sinks
    )
