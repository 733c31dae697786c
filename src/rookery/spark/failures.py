"""Restores Rookery errors of tasks on the driver; Spark forwards only their text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rookery import errors
from rookery.errors import ApiError, Error

_LINE: Final = re.compile(r"rookery\.errors\.(\w+): (.*)")
"""Matches the last line of a traceback."""


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise the Rookery error that made a task fail; other errors stay Spark's.

    Raises:
        Error: a task failed with it in each of Spark's attempts.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 (it takes a second)

    try:
        yield
    except PySparkException as error:
        own = own_error(str(error))
        if own is None:
            raise
        raise own from error


def own_error(text: str) -> Error | None:
    """Return the error at the end of a task's traceback, if it is a Rookery error."""
    lines = [line for line in text.splitlines() if line.strip()]
    match = _LINE.fullmatch(lines[-1]) if lines else None
    kind = getattr(errors, match[1], None) if match else None
    if match is None or not isinstance(kind, type) or not issubclass(kind, Error):
        return None
    # The text does not contain the error code, and no caller needs it.
    return Error(match[2]) if issubclass(kind, ApiError) else kind(match[2])
