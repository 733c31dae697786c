"""The tunings of a session, and a session without any, which leaves Spark unchanged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from rookery.errors import ConfigError
from rookery.spark.sparksession import choose_tunings, settings_for
from rookery.spark.tuning.choice import (
    ALL,
    OWN,
    SETTING,
    choose,
    python_path,
    tunings,
)

VERSION = "4.3.0"
NAMES = ["arrow-unchecked", "early-connect", "rows-once", "worker-daemon"]
LOOK = """
import json, os, sys
from rookery.spark import session
settings = {"spark.log.level": "ERROR", "spark.driver.host": "127.0.0.1"}
spark = session("look", "local[1]", settings=settings, tuning=sys.argv[1])
def look(_):
    from pyspark import daemon
    yield type(vars(daemon)["gc"]).__name__
jvm = spark.sparkContext._jvm
print(json.dumps({
    "gc": spark.sparkContext.parallelize([0], 1).mapPartitions(look).first(),
    "daemon": spark.conf.get("spark.python.daemon.module", None),
    "path": jvm.System.getenv("PYTHONPATH"),
    "own path": os.environ.get("PYTHONPATH"),
    "arrow": jvm.System.getProperty("arrow.enable_unsafe_memory_access"),
    "strategies": spark._jsparkSession.experimental().extraStrategies().size(),
}))
spark.stop()
"""


def names(text: str, version: str = VERSION) -> list[str]:
    return [tuning.name for tuning in choose(text, version)]


def test_only_named_tunings_are_chosen() -> None:
    assert list(tunings()) == NAMES
    assert names("") == []
    assert names("worker-daemon, rows-once") == ["rows-once", "worker-daemon"]
    assert names(ALL) == NAMES
    assert names(OWN) == ["rows-once", "worker-daemon"]


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="there is no rowsonce; there are arrow-unchecked, ear"):
        choose("rowsonce", VERSION)


def test_unchecked_pyspark_is_not_tuned_and_warns_once() -> None:
    with pytest.warns(RuntimeWarning, match=r"rows-once does nothing.* 4\.2 and 4\.3.* 5\.0\.1"):
        assert names("rows-once", "5.0.1") == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert names("rows-once", "5.0.1") == []


def test_first_source_of_settings_takes_precedence() -> None:
    chosen = choose_tunings({SETTING: ""}, {SETTING: ALL})
    assert chosen == ()
    [only] = choose_tunings({}, {SETTING: "rows-once"})
    assert only.name == "rows-once"


def test_settings_are_those_of_spark_without_a_tuning() -> None:
    plain, tuned = settings_for("yarn"), settings_for("yarn", choose(ALL, VERSION))

    assert tuned.keys() - plain.keys() == {
        "spark.python.daemon.module",
        "spark.driver.defaultJavaOptions",
        "spark.executor.defaultJavaOptions",
    }


def test_only_early_connect_changes_the_python_path() -> None:
    assert python_path(choose("worker-daemon,rows-once", VERSION), "/mine") == "/mine"
    assert python_path((), None) is None
    early = choose("early-connect", VERSION)
    assert str(python_path(early, "/mine")).endswith(f"/tuning/early{os.pathsep}/mine")
    assert str(python_path(early, None)).endswith("/tuning/early")


@pytest.mark.usefixtures("own_spark")
def test_session_is_unchanged_without_a_tuning(tmp_path: Path) -> None:
    plain, tuned = look("", tmp_path), look(ALL, tmp_path)

    path = plain["own path"]
    assert plain == {
        "gc": "module",
        "daemon": None,
        "path": path,
        "own path": path,
        "arrow": None,
        "strategies": 0,
    }
    assert tuned["gc"] == "SparingCollector"
    assert tuned["daemon"] == "rookery.spark.tuning.daemon"
    assert "/tuning/early" in tuned["path"]
    assert tuned["own path"] == path
    assert tuned["arrow"] == "true"
    assert tuned["strategies"] == 1


def look(tuning: str, folder: Path) -> dict[str, Any]:
    """Start Spark in a process of its own; return what can be seen of its internals."""
    done = subprocess.run(
        [sys.executable, "-c", LOOK, tuning],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
