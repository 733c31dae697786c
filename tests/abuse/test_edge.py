"""The attacks on TLS and on logins, at a proxy that ends both.

The tests are those for the closed broker; they run here with the proxy in its place. Those that
look at a broker's audit look at the proxy's log instead. Quotas of connections are the broker's.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from tests.abuse.attack import Attacker, framed, handshake, token
from tests.abuse.batches import MEBIBYTE
from tests.abuse.brokers import GUEST
from tests.abuse.proxies import EdgeProxy
from tests.abuse.test_logins import (
    FAILED,
    LINE_BYTES,
    NONE,
    code_of,
    fail,
    test_client_that_never_logs_in_is_closed,
    test_endless_logins_of_one_user_take_bounded_memory,
    test_false_length_of_a_login_message_allocates_nothing,
    test_long_frame_before_the_login_closes_the_connection,
    test_long_login_message_is_refused,
    test_message_without_a_mechanism_closes_the_connection,
    test_odd_scram_message_is_refused_or_fails_later,
    test_odd_token_is_refused,
    test_passwords_of_clients_that_hung_up_delay_no_login,
    test_repeated_handshake_closes_the_connection,
    test_slow_frame_does_not_prolong_the_time_for_a_login,
    test_the_same_frame_after_the_login_is_read,
)
from tests.abuse.test_tls import (
    test_abandoned_handshakes_leave_no_sockets,
    test_bytes_that_are_not_a_handshake_close_the_connection,
    test_hello_to_a_plaintext_port_closes_the_connection,
    test_old_versions_are_refused,
    test_records_in_single_bytes_are_put_together,
    test_renegotiation_and_key_updates_do_not_delay_others,
    test_slow_handshakes_do_not_delay_others,
    test_tiny_records_are_put_together,
    test_unfinished_handshakes_are_closed_after_a_time,
)
from tests.abuse.victims import Victim

__all__ = [
    "test_abandoned_handshakes_leave_no_sockets",
    "test_bytes_that_are_not_a_handshake_close_the_connection",
    "test_client_that_never_logs_in_is_closed",
    "test_endless_logins_of_one_user_take_bounded_memory",
    "test_false_length_of_a_login_message_allocates_nothing",
    "test_hello_to_a_plaintext_port_closes_the_connection",
    "test_long_frame_before_the_login_closes_the_connection",
    "test_long_login_message_is_refused",
    "test_message_without_a_mechanism_closes_the_connection",
    "test_odd_scram_message_is_refused_or_fails_later",
    "test_odd_token_is_refused",
    "test_old_versions_are_refused",
    "test_passwords_of_clients_that_hung_up_delay_no_login",
    "test_records_in_single_bytes_are_put_together",
    "test_renegotiation_and_key_updates_do_not_delay_others",
    "test_repeated_handshake_closes_the_connection",
    "test_slow_frame_does_not_prolong_the_time_for_a_login",
    "test_slow_handshakes_do_not_delay_others",
    "test_the_same_frame_after_the_login_is_read",
    "test_tiny_records_are_put_together",
    "test_unfinished_handshakes_are_closed_after_a_time",
]


@pytest.fixture
def fortress(shared: Callable[[str], Victim]) -> EdgeProxy:
    """The proxy in place of the closed broker."""
    return cast("EdgeProxy", shared("edge proxy"))


@pytest.fixture
def victim(shared: Callable[[str], Victim]) -> Victim:
    """The proxy in place of the open broker."""
    return shared("open proxy")


def test_only_one_message_of_many_is_checked(fortress: EdgeProxy) -> None:
    said = fortress.log.stat().st_size
    message = framed(token(b"\0" + GUEST.encode() + b"\0wrong"))
    with Attacker(fortress.stranger) as line:
        line.send(framed(handshake(b"PLAIN")) + message * 1000)

        assert code_of(line.read()) == NONE
        assert code_of(line.read()) == FAILED
        assert line.read() is None
    assert fortress.words(said).count("login failed") == 1


def test_storm_of_failed_logins_is_answered(fortress: EdgeProxy) -> None:
    """`bystander` produces meanwhile."""
    before, sockets = fortress.resident(), fortress.sockets()
    said, attempts = fortress.log.stat().st_size, 400
    with ThreadPoolExecutor(16) as pool:
        codes = list(pool.map(lambda number: fail(fortress.stranger, number), range(attempts)))

    assert set(codes) == {FAILED}
    assert len(fortress.words(said)) < attempts * LINE_BYTES + MEBIBYTE // 4
    assert fortress.resident() - before < 16 * MEBIBYTE
    fortress.wait_for_sockets(sockets)
