"""Denials of a closed broker through a proxy that passes logins on: neither stores denied names."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from tests.abuse.proxies import RelayProxy
from tests.abuse.test_denials import (
    test_denials_of_long_names_take_bounded_memory_and_log,
    test_denied_names_reveal_nothing,
    test_denied_records_are_not_expanded,
)
from tests.abuse.victims import Victim

__all__ = [
    "test_denials_of_long_names_take_bounded_memory_and_log",
    "test_denied_names_reveal_nothing",
    "test_denied_records_are_not_expanded",
]


@pytest.fixture
def fortress(shared: Callable[[str], Victim]) -> RelayProxy:
    """The proxy in place of the closed broker."""
    return cast("RelayProxy", shared("relay proxy"))
