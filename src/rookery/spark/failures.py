"""Errors of tasks as what they were there: Spark passes only their text on to the driver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rookery import errors
from rookery.errors import ApiError, Error

_LINE: Final = re.compile(r"rookery\.errors\.(\w+): (.*)")
"""How a traceback ends."""


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise an error of ours that made a task fail as itself; others stay Spark's.

    Raises:
        Error: a task failed with it as often as Spark tries one.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 (it takes a second)

    try:
        yield
    except PySparkException as error:
        found = own_error(str(error))
        if found is None:
            raise
        raise found from error


def own_error(text: str) -> Error | None:
    """Return the error that a task's traceback ends with, if it is one of ours."""
    lines = [line for line in text.splitlines() if line.strip()]
    match = _LINE.fullmatch(lines[-1]) if lines else None
    kind = getattr(errors, match[1], None) if match else None
    if match is None or not isinstance(kind, type) or not issubclass(kind, Error):
        return None
    # A code does not come through, and nobody asks for it.
    return Error(match[2]) if issubclass(kind, ApiError) else kind(match[2])
