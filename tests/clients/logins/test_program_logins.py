"""kcat, franz-go and Kafka's Java tools log in: the same table as for Python's clients."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rookery.testing.kafka import KafkaServer
from tests.clients.logins.conftest import LoginBroker
from tests.clients.logins.loginway import REFUSED_WAYS, WAYS, LoginWay
from tests.clients.logins.programs import FranzClient, JavaClient, KcatClient
from tests.clients.logins.test_logins import check_login, check_refusal

ways = pytest.mark.parametrize("way", WAYS, ids=str)
refused_ways = pytest.mark.parametrize("way", REFUSED_WAYS, ids=str)


KCAT_WAYS = tuple(way for way in WAYS if way.mechanism in {"", "PLAIN"})
SCRAM_WAYS = tuple(way for way in REFUSED_WAYS if way.mechanism.startswith("SCRAM"))


@pytest.mark.parametrize("way", KCAT_WAYS, ids=str)
def test_kcat_logs_in(kcat: KcatClient, logins: LoginBroker, way: LoginWay) -> None:
    check_login(kcat, logins, way)


@pytest.mark.parametrize("way", SCRAM_WAYS, ids=str)
def test_scram_of_an_old_librdkafka_works_exactly_if_kafka_accepts_it(
    kcat: KcatClient, logins: LoginBroker, kafka_secure: KafkaServer, way: LoginWay
) -> None:
    """Before 2.6.1, librdkafka sends a wrong nonce in the last message; Kafka 4 refuses it."""
    ours, topic = logins.credentials(way), logins.topic(way)
    theirs = replace(
        ours,
        address=kafka_secure.address("SASL_SSL"),
        authority=kafka_secure.certificates.ca,
    )
    results = [kcat.can_log_in(login, topic) for login in (ours, theirs)]
    assert results[0] == results[1]


@refused_ways
def test_kcat_reports_a_refused_login(kcat: KcatClient, logins: LoginBroker, way: LoginWay) -> None:
    check_refusal(kcat, logins, way)


@ways
def test_franz_logs_in(franz: FranzClient, logins: LoginBroker, way: LoginWay) -> None:
    check_login(franz, logins, way)


@refused_ways
def test_franz_reports_a_refused_login(
    franz: FranzClient, logins: LoginBroker, way: LoginWay
) -> None:
    check_refusal(franz, logins, way)


@ways
def test_java_logs_in(javaclient: JavaClient, logins: LoginBroker, way: LoginWay) -> None:
    check_login(javaclient, logins, way)


@refused_ways
def test_java_reports_a_refused_login(
    javaclient: JavaClient, logins: LoginBroker, way: LoginWay
) -> None:
    check_refusal(javaclient, logins, way)
