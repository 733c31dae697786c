"""Runs a job's tasks on Spark: one function over many values, with the results in order.

    tasks ──► Spark tasks, one each ──► result, or our own error ──► tried again, or raised

It works in classic sessions and over Connect, and does not shuffle.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import pyarrow as pa

from rookery.errors import ApiError, Conflict, Error, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

_TRIES: Final = 4
_FIELDS: Final[dict[str, pa.DataType]] = {"number": pa.int64(), "result": pa.binary()}
_RESULT: Final = pa.schema(_FIELDS)


class TaskFailure(NamedTuple):
    """A task that raised a Rookery error."""

    error: Error


def slots(spark: SparkSession) -> int:
    """Return the number of concurrent tasks, as far as it is known."""
    try:
        return max(spark.sparkContext.defaultParallelism, 1)
    except (AttributeError, NotImplementedError):  # not available in a Connect session
        return 2


def run_tasks(spark: SparkSession, work: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
    """Run a function on every task; retry tasks that failed with a conflict or an outage.

    Raises:
        Error: the last error of a task.
    """
    results: dict[int, R] = {}
    left = dict(enumerate(tasks))
    for attempt in range(_TRIES):
        if not left:
            break
        for number, result in _run_once(spark, work, left):
            if not isinstance(result, TaskFailure):
                results[number] = result
                del left[number]
            elif attempt == _TRIES - 1 or not isinstance(result.error, Conflict | Unavailable):
                raise result.error
    return [results[number] for number in range(len(tasks))]


def _run_once(
    spark: SparkSession, work: Callable[[T], R], tasks: dict[int, T]
) -> Iterator[tuple[int, R | TaskFailure]]:
    numbers = list(tasks)
    # Every Spark task gets all of them: there are no more than in a slice.
    packed = [pickle.dumps(tasks[number]) for number in numbers]

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch.column(0).to_numpy():
                result = pickle.dumps(outcome(work, pickle.loads(packed[place])))  # noqa: S301 (our own)
                yield pa.record_batch([[numbers[place]], [result]], schema=_RESULT)

    places = spark.range(0, len(numbers), 1, len(numbers))
    results = places.mapInArrow(run, "number long, result binary").collect()
    for row in sorted(results, key=lambda row: int(row["number"])):
        yield row["number"], pickle.loads(row["result"])  # noqa: S301 (our own)


def outcome(work: Callable[[T], R], task: T) -> R | TaskFailure:
    """Run a task; return its result, or a Rookery error as `TaskFailure`."""
    try:
        return work(task)
    except ApiError as error:
        return TaskFailure(Error(str(error)))  # it does not survive pickling
    except Error as error:
        return TaskFailure(type(error)(str(error)) if type(error) in _PLAIN else _nearest(error))


_PLAIN: Final = frozenset((Conflict, Unavailable, Error))


def _nearest(error: Error) -> Error:
    """Convert an error to the nearest class of `rookery.errors`, which can always be unpickled."""
    for kind in type(error).__mro__:
        if kind.__module__ == "rookery.errors" and kind is not Error:
            return kind(str(error))  # type: ignore[no-any-return] # all take a text
    return Error(str(error))
