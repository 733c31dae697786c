"""`rookery tokens` with our broker, and with a real Kafka."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.testing.kafka import KafkaServer
from rookery.testing.properties import KafkaSettings
from rookery.testing.wait import wait_until
from tests.broker.secured import PASSWORD, USER, serve_secured
from tests.cli.running import Rookery

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
ALICE = f"User:{USER}"


class TokenUser:
    """The command line as a user that logs in by a client.properties."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address = address
        self._folder = folder
        self.rookery = Rookery(address)

    def config(self, name: str, user: str, password: str, options: str = "") -> list[str]:
        path = self._folder / f"{name}.properties"
        path.write_text(
            "security.protocol=SASL_PLAINTEXT\n"
            "sasl.mechanism=SCRAM-SHA-256\n"
            f'sasl.jaas.config={MODULE} required username="{user}" password="{password}"'
            f"{options};\n"
        )
        return ["--client-config", str(path)]


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[TokenUser]:
    with serve_secured(tmp_path) as broker:
        yield TokenUser(broker.address("sasl_plaintext"), tmp_path)


@pytest.fixture
def theirs(own_kafka: None, tmp_path: Path) -> Iterator[TokenUser]:
    settings = KafkaSettings(
        listeners=("SASL_PLAINTEXT",),
        users={USER: PASSWORD},
        properties={"delegation.token.secret.key": "a-key"},
    )
    with KafkaServer(settings) as kafka:
        yield TokenUser(kafka.address("SASL_PLAINTEXT"), tmp_path)


def check_life_of_a_token(user: TokenUser, file: Path) -> None:
    rookery, login = user.rookery, user.config("alice", USER, PASSWORD)
    made = rookery.json(
        "tokens", "create", *login, "--renewer", "User:bob", "--max-lifetime", "7200",
        "--hmac-file", str(file),
    )  # fmt: skip
    token_id, hmac = made["token_id"], file.read_text().strip()
    wait_until(lambda: rookery.json("tokens", "list", *login, "--owner", ALICE))
    [listed] = rookery.json("tokens", "list", *login)
    assert listed == made
    assert (made["owner"], made["requester"], made["renewers"]) == (ALICE, ALICE, ["User:bob"])
    assert made["max_ms"] - made["issued_ms"] == 7_200_000
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    flags = ("--user", token_id, "--password-file", str(file), "--delegation-token")
    rookery("topics", "list", *flags)
    rookery("topics", "list", *user.config("job", token_id, hmac, " tokenauth=true"))

    renewed = rookery.json("tokens", "renew", token_id, *login, "--for", "60")
    assert made["issued_ms"] < renewed["expires_ms"] < made["expires_ms"]
    expired = rookery.json("tokens", "expire", token_id, *login)
    assert expired == {"token_id": token_id, "expires_ms": None}
    wait_until(lambda: rookery.json("tokens", "list", *login) == [])
    refused = rookery.run("tokens", "renew", token_id, *login)
    assert refused.returncode == 1
    assert b"no such token" in refused.stderr


def test_a_token_is_created_used_renewed_and_expired(ours: TokenUser, tmp_path: Path) -> None:
    check_life_of_a_token(ours, tmp_path / "hmac")


def test_the_same_works_with_a_real_kafka(theirs: TokenUser, tmp_path: Path) -> None:
    check_life_of_a_token(theirs, tmp_path / "hmac")


def test_texts_and_mistakes(ours: TokenUser, tmp_path: Path) -> None:
    rookery, login = ours.rookery, ours.config("alice", USER, PASSWORD)
    assert b"no tokens" in rookery("tokens", "list", *login)
    made = rookery("tokens", "create", *login).decode().split()
    token_id = made[made.index("token") + 1]
    assert token_id.encode() in rookery("tokens", "list", *login)
    assert b"expires" in rookery("tokens", "expire", token_id, *login, "--after", "60")
    assert rookery("tokens", "expire", token_id, *login).endswith(b"removed\n")

    (tmp_path / "taken").touch()
    for args, text in (
        (["--hmac-file", str(tmp_path / "taken")], b"exists already"),
        (["--owner", "alice"], b"--owner: 'alice' is not a principal"),
    ):
        wrong = rookery.run("tokens", "create", *login, *args)
        assert wrong.returncode == 2
        assert text in wrong.stderr
