"""Errors of tasks, as the driver gets them: text, with a traceback in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rookery.errors import ApiError, ConfigError, Conflict, Corrupt, Error, ErrorCode, Gone
from rookery.spark.failures import own_error, own_errors

_TRACE = (
    "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n  File"
)


@pytest.mark.parametrize("kind", [Error, Conflict, Gone, Corrupt, ConfigError])
def test_our_error_is_found_at_the_end_of_a_trace(kind: type[Error]) -> None:
    own = own_error(f"{_TRACE}\nrookery.errors.{kind.__name__}: t-0: what happened\n\n")
    assert type(own) is kind
    assert str(own) == "t-0: what happened"


@pytest.mark.parametrize(
    "text", ["", "\n", f"{_TRACE}\nValueError: x", f"{_TRACE}\nrookery.errors.Nobody: x"]
)
def test_foreign_errors_are_ignored(text: str) -> None:
    assert own_error(text) is None


def test_our_errors_pass_through_spark(spark: SparkSession) -> None:
    def fail(make: Callable[[], Exception]) -> None:
        def work(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            raise make()

        with own_errors():
            spark.range(1).mapInArrow(work, "id long").collect()

    with pytest.raises(Corrupt, match=r"^t-0: damaged$"):
        fail(lambda: Corrupt("t-0: damaged"))
    with pytest.raises(Error, match="no such topic"):
        fail(lambda: ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic"))
    with pytest.raises(PySparkException, match="ValueError: mine"):
        fail(lambda: ValueError("mine"))
