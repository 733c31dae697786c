"""A broker that enforces access rules, with users that can log in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from hashlib import pbkdf2_hmac
from pathlib import Path
from typing import Any

from rookery.broker.settings import BrokerSettings
from rookery.errors import ErrorCode
from rookery.service.listen.listenersettings import ListenerConfig
from rookery.testing.kafka import KafkaServer
from rookery.testing.ports import HOST, free_port
from rookery.testing.properties import KafkaSettings
from rookery.testing.servedbroker import ServedBroker
from rookery.wire.messages.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from tests.broker.access.login import TestedServer

USERS = {"alice": "alice-secret", "admin": "admin-secret", "prober": "prober-secret"}


class GuardedBroker(ServedBroker):
    """A broker with a listener for super users and one for logins."""

    def __init__(self, folder: Path, **options: Any) -> None:
        settings = BrokerSettings(
            durability="os",
            authorizer="acls",
            super_users="User:ANONYMOUS;User:admin",
            **options,
        )
        super().__init__(folder, settings)
        self.login_port = free_port()
        listeners = {
            "PLAINTEXT": ListenerConfig(listen=self.bootstrap),
            "SASL": ListenerConfig(
                listen=f"sasl_plaintext://{HOST}:{self.login_port}", mechanisms="PLAIN"
            ),
        }
        defaults = BrokerSettings()
        self.settings = replace(self.settings, listen=defaults.listen, listeners=listeners)


@contextmanager
def guarded_kafka() -> Iterator[TestedServer]:
    """Start a real Kafka with the same users, listeners and authorizer."""
    settings = KafkaSettings(
        listeners=("SASL_PLAINTEXT",),
        users=USERS,
        properties={
            "allow.everyone.if.no.acl.found": "false",
            "delegation.token.secret.key": "the key of tokens",
            "num.partitions": "1",
        },
    )
    with KafkaServer(settings) as kafka:
        yield TestedServer(kafka.bootstrap, kafka.port("SASL_PLAINTEXT"))


def add_users(server: TestedServer, users: Mapping[str, str] = USERS) -> None:
    upsertions = [
        ScramCredentialUpsertion(
            name=name,
            mechanism=1,
            iterations=4096,
            salt=b"salt",
            salted_password=pbkdf2_hmac("sha256", word.encode(), b"salt", 4096),
        )
        for name, word in users.items()
    ]
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions)
    answer = server.ask(ALTER_USER_SCRAM_CREDENTIALS, 0, request)
    assert {result.error_code for result in answer.results} == {ErrorCode.NONE}
