"""Checks of `rookery doctor` for Spark: its presence, its Java, and our data source."""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.util import find_spec
from typing import NamedTuple

from rookery.errors import ConfigError
from rookery.spark.java import find_java, java_version

_SOURCE = "pyspark_rookery"


class SparkFinding(NamedTuple):
    """The result of one check; there is a remedy if it failed."""

    name: str
    detail: str
    remedy: str = ""


def look_at_spark(environ: Mapping[str, str] | None = None) -> Iterator[SparkFinding]:
    """Yield the findings about Spark; its absence is not a problem, since Spark is optional."""
    if find_spec("pyspark") is None:
        yield SparkFinding(
            "pyspark", 'not installed; only for tables: pip install "rookery[spark]"'
        )
        return
    yield SparkFinding("pyspark", f"{metadata.version('pyspark')}: topics as DataFrames and tables")
    yield _look_for_java(os.environ if environ is None else environ)  # noqa: TID251 (JAVA_HOME)
    yield _look_for_source()


def _look_for_java(environ: Mapping[str, str]) -> SparkFinding:
    try:
        home = find_java(environ)
    except ConfigError as error:
        return SparkFinding("java", "none that Spark can use", str(error))
    return SparkFinding("java", f"{java_version(home)} at {home}: runs Spark")


def _look_for_source() -> SparkFinding:
    if _SOURCE in {module.name for module in pkgutil.iter_modules()}:
        return SparkFinding(_SOURCE, 'listed: spark.read.format("rookery") is found')
    # Spark looks in the list of packages, which lacks packages that an import hook serves.
    state = "importable, but not listed" if find_spec(_SOURCE) else "missing"
    remedy = "pip install --force-reinstall rookery"
    editable = ", or for an editable one: pip install -e . --config-settings editable_mode=compat"
    return SparkFinding(
        _SOURCE, f'{state}: spark.read.format("rookery") is not found', remedy + editable
    )
