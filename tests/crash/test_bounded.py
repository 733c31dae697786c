"""A call that does not return ends with an error."""

from __future__ import annotations

from threading import Event

import pytest

from tests.crash.bounded import within


def test_call_returns_or_raises() -> None:
    values = {"seven": 7}

    assert within(lambda: values["seven"], "seven") == 7
    with pytest.raises(KeyError, match="eight"):
        within(lambda: values["eight"], "a failure")


def test_call_that_does_not_return_is_named() -> None:
    end = Event()

    with pytest.raises(TimeoutError, match=r"^the wait did not return within 0\.01 s$"):
        within(end.wait, "the wait", 0.01)
    end.set()
