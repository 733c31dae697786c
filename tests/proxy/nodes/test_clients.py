"""Clients see through broker nodes what they see directly."""

from __future__ import annotations

from tests.proxy.test_mirror import (
    test_clients_see_only_addresses_of_the_proxy,
    test_groups_share_and_commit,
    test_records_pass_in_order,
    test_transactions_pass,
    topic,
)

__all__ = [
    "test_clients_see_only_addresses_of_the_proxy",
    "test_groups_share_and_commit",
    "test_records_pass_in_order",
    "test_transactions_pass",
    "topic",
]
