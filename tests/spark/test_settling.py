"""Workers of Spark's own daemon: the objects that they have loaded are frozen once."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from pyspark_rookery import DefaultSource
from rookery.spark import gcfreeze
from rookery.spark.gcfreeze import settle, settle_after


@pytest.fixture(autouse=True)
def frozen_nothing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(gcfreeze, "_modules", 0)
    gc.unfreeze()
    yield
    gc.unfreeze()


def run_as(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    program = ModuleType("__main__")
    program.__spec__ = ModuleSpec(name, None)
    monkeypatch.setitem(sys.modules, "__main__", program)


def test_worker_freezes_loaded_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    run_as(monkeypatch, "pyspark.daemon")
    settle()
    count = gc.get_freeze_count()
    assert count > 1000
    kept = [[] for _ in range(1000)]  # type: ignore[var-annotated] # anything that is tracked
    settle()
    assert gc.get_freeze_count() <= count, f"{len(kept)} more things came later"


def test_objects_loaded_later_are_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    run_as(monkeypatch, "pyspark.daemon")
    settle()
    gc.unfreeze()
    settle()
    assert not gc.get_freeze_count()
    monkeypatch.setitem(sys.modules, "loaded_later", ModuleType("loaded_later"))
    settle()
    assert gc.get_freeze_count()


def test_creating_a_source_freezes_the_process_of_spark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_as(monkeypatch, "pyspark.daemon")
    DefaultSource({"subscribe": "t"})
    assert gc.get_freeze_count()


def test_other_programs_are_not_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    run_as(monkeypatch, "pytest")
    settle()
    assert not gc.get_freeze_count()


def test_objects_are_frozen_after_the_last_row(monkeypatch: pytest.MonkeyPatch) -> None:
    run_as(monkeypatch, "pyspark.daemon")
    rows = settle_after(iter("ab"))
    assert next(rows) == "a"
    assert next(rows) == "b"
    assert not gc.get_freeze_count()
    assert not list(rows)
    assert gc.get_freeze_count()
