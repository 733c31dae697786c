"""Settings that cannot work are refused by name."""

from __future__ import annotations

import pytest

from rookery.client.settings import ACKS_ALL, ACKS_LEADER, ClientSettings, ProducerSettings, Sasl
from rookery.errors import ConfigError


def test_bootstrap_must_be_addresses() -> None:
    with pytest.raises(ConfigError, match="bootstrap: 'nowhere' is not host:port"):
        ClientSettings(bootstrap="nowhere")


def test_times_must_be_positive() -> None:
    with pytest.raises(ConfigError, match="call_timeout_ms: must be above 0"):
        ClientSettings(bootstrap="h:1", call_timeout_ms=0)


def test_a_password_is_never_shown() -> None:
    settings = ClientSettings(bootstrap="h:1", sasl=Sasl("PLAIN", "alice", "hidden-word"))
    assert "alice" in repr(settings)
    assert "hidden-word" not in repr(settings)


def test_unknown_codec_is_refused() -> None:
    with pytest.raises(ConfigError, match="compression: no codec is named 'rar'"):
        ProducerSettings(compression="rar")


def test_unknown_acks_are_refused() -> None:
    with pytest.raises(ConfigError, match="acks: must be 0, 1 or -1"):
        ProducerSettings(acks=2)


def test_idempotence_needs_all_acks() -> None:
    with pytest.raises(ConfigError, match="is_idempotent: needs acks=-1"):
        ProducerSettings(acks=ACKS_LEADER, is_idempotent=True)


def test_in_flight_requests_are_limited_to_what_brokers_remember() -> None:
    with pytest.raises(ConfigError, match="max_in_flight: must be 1 to 5, not 6"):
        ProducerSettings(max_in_flight=6)


def test_idempotence_is_the_default_with_all_acks_only() -> None:
    assert ProducerSettings().has_sequences
    assert ProducerSettings(acks=ACKS_ALL).has_sequences
    assert not ProducerSettings(acks=ACKS_LEADER).has_sequences
    assert not ProducerSettings(is_idempotent=False).has_sequences


def test_unsupported_compression_level_is_refused() -> None:
    with pytest.raises(ConfigError, match="compression_level: gzip cannot be used at level 99"):
        ProducerSettings(compression="gzip", compression_level=99)
