"""`rookery quotas` with our broker, and with a real Kafka."""

from __future__ import annotations

from rookery.testing.kafka import KafkaServer
from rookery.testing.wait import wait_until
from tests.cli.running import Rookery

ENTITY = ("--for-user", "jackdaw", "--for-client-id-default")
PARTS = {"user": "jackdaw", "client-id": None}


def check_life_of_a_quota(rookery: Rookery) -> None:
    planned = rookery.json("quotas", "set", *ENTITY, "producer_byte_rate=1000000000", "--dry-run")
    assert rookery.json("quotas", "list", "--for-user", "jackdaw") == []
    rookery.json(
        "quotas", "set", *ENTITY, "producer_byte_rate=1000000000", "request_percentage=9000.5"
    )
    limits = {"producer_byte_rate": 1e9, "request_percentage": 9000.5}
    # A broker of Kafka answers from its own copy of the metadata, which can lag.
    wait_until(lambda: rookery.json("quotas", "list", "--for-user", "jackdaw") != [])
    [quota] = rookery.json("quotas", "list", "--for-user", "jackdaw")
    kept = rookery.json("quotas", "remove", *ENTITY, "--dry-run")
    first = rookery.json("quotas", "remove", *ENTITY, "request_percentage")
    wait_until(
        lambda: len(rookery.json("quotas", "list", "--for-user", "jackdaw")[0]["limits"]) == 1
    )
    rest = rookery.json("quotas", "remove", *ENTITY)

    assert planned["dry_run"]
    assert quota == {"entity": PARTS, "limits": limits}
    assert kept["removed"] == sorted(limits)
    assert (first["removed"], rest["removed"]) == (["request_percentage"], ["producer_byte_rate"])
    wait_until(lambda: rookery.json("quotas", "list", "--for-user", "jackdaw") == [])


def test_a_quota_is_set_and_removed(rookery: Rookery) -> None:
    check_life_of_a_quota(rookery)


def test_the_same_works_with_a_real_kafka(kafka: KafkaServer) -> None:
    check_life_of_a_quota(Rookery(kafka.bootstrap))


def test_quotas_are_printed_as_readable_text(rookery: Rookery) -> None:
    text = rookery("quotas", "set", "--for-ip", "10.0.0.9", "connection_creation_rate=5")
    listed = rookery("quotas", "list", "--for-ip", "10.0.0.9")
    removed = rookery("quotas", "remove", "--for-ip", "10.0.0.9")

    assert text == b"ip 10.0.0.9: set (connection_creation_rate=5)\n"
    assert b"connection_creation_rate" in listed
    assert removed == b"ip 10.0.0.9: removed (connection_creation_rate)\n"
    assert b"no such quotas" in rookery("quotas", "list", "--for-ip", "10.0.0.9")
