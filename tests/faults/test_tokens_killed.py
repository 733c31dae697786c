"""kill -9 while delegation tokens change: after the start each is as before or after a change."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from hashlib import pbkdf2_hmac
from itertools import count
from pathlib import Path
from threading import Event, Thread

import pytest

from rookery.client.client import Client
from rookery.client.settings import ClientSettings, Sasl
from rookery.client.tokens import DelegationToken
from rookery.errors import ApiError, ErrorCode, Unavailable
from rookery.testing.broker import BrokerProcess
from rookery.testing.servedbroker import ask
from rookery.testing.wait import wait_until
from rookery.wire.messages.alter_user_scram_credentials import (
    ALTER_USER_SCRAM_CREDENTIALS,
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)

KILLS = 5
USER, PASSWORD = "alice", "alice-secret"
HOUR_MS = 3_600_000
MECHANISM = "SCRAM-SHA-256"
CALL_MS = 20_000

Expiries = dict[str, int]
"""The time at which each token expires, by its id."""


class SaslBroker(BrokerProcess):
    """A broker whose clients must log in."""

    def command(self) -> list[str]:
        """Return the command line."""
        address = f"sasl_plaintext://{self.bootstrap}"
        # The last of several flags counts.
        return [*super().command(), "--listen", address, "--security-mechanisms", MECHANISM]


def settings(broker: BrokerProcess, sasl: Sasl | None = None) -> ClientSettings:
    return ClientSettings(
        bootstrap=broker.bootstrap,
        sasl=sasl or Sasl(MECHANISM, USER, PASSWORD),
        call_timeout_ms=CALL_MS,
    )


class TokenChanger:
    """A client that creates, renews, shortens and removes tokens until its broker goes away."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.acknowledged: dict[str, DelegationToken] = {}
        """The tokens after the last acknowledged change."""
        self.expiries: Expiries = {}
        self.changing = ""
        """The id of the token with a change in flight; empty if one is being created."""
        self.removed: list[DelegationToken] = []
        self.changes = 0
        self._settings = settings(broker)
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self._run())
        self._thread = Thread(target=self._loop.run_until_complete, args=(self._task,))
        self._thread.start()

    def stop(self) -> None:
        """Give up the change in flight; its broker is gone."""
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        with suppress(Unavailable, asyncio.CancelledError):
            async with Client(self._settings) as client:
                for number in count():
                    await self._change(client, number)

    async def _change(self, client: Client, number: int) -> None:
        if len(self.expiries) < 3:
            self.changing = ""
            token = await client.tokens.create(max_lifetime_ms=HOUR_MS)
            self.acknowledged[token.token_id] = token
            self.expiries[token.token_id] = token.expires_ms
        else:
            self.changing = [*self.expiries][number % 3]
            token = self.acknowledged[self.changing]
            match number % 4:
                case 0:
                    await client.tokens.expire(token.hmac)
                    del self.expiries[self.changing]
                    self.removed.append(token)
                case 1 | 2:
                    expires_ms = await client.tokens.expire(token.hmac, HOUR_MS - number)
                    self.expiries[self.changing] = expires_ms or 0
                case _:
                    expires_ms = await client.tokens.renew(token.hmac, HOUR_MS - number)
                    self.expiries[self.changing] = expires_ms or 0
        self.changes += 1


async def check(broker: BrokerProcess, changer: TokenChanger) -> None:
    """Compare the tokens in force with those that the changer knows."""
    async with Client(settings(broker)) as client:
        tokens = {token.token_id: token for token in await client.tokens.describe()}
    unchanged = {name: time for name, time in changer.expiries.items() if name != changer.changing}
    assert unchanged == {name: tokens[name].expires_ms for name in unchanged}
    extra = [token for name, token in tokens.items() if name not in changer.expiries]
    # A creation may have counted without an answer; nothing else makes a token.
    assert len(extra) <= (not changer.changing)
    for token in tokens.values():
        assert (token.owner, token.requester) == (f"User:{USER}",) * 2
        assert token.issued_ms < token.expires_ms <= token.max_ms
        known = changer.acknowledged.get(token.token_id)
        assert known is None or known.hmac == token.hmac
        assert await can_log_in(broker, token)
    for token in changer.removed[-2:]:
        assert token.token_id not in tokens
        assert not await can_log_in(broker, token)


async def can_log_in(broker: BrokerProcess, token: DelegationToken) -> bool:
    sasl = Sasl(MECHANISM, token.token_id, token.password, is_delegation_token=True)
    try:
        async with Client(settings(broker, sasl)) as client:
            await client.admin.describe_cluster()
    except ApiError as error:
        if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
            return False
        raise
    return True


async def remove_all(broker: BrokerProcess) -> None:
    async with Client(settings(broker)) as client:
        for token in await client.tokens.describe():
            await client.tokens.expire(token.hmac)


def add_user(folder: Path) -> None:
    salted = pbkdf2_hmac("sha256", PASSWORD.encode(), b"salt", 4096)
    alice = ScramCredentialUpsertion(
        name=USER, mechanism=1, iterations=4096, salt=b"salt", salted_password=salted
    )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[alice])
    with BrokerProcess(folder) as open_broker:
        answer = ask(open_broker.bootstrap, ALTER_USER_SCRAM_CREDENTIALS, 0, request)
        assert [result.error_code for result in answer.results] == [ErrorCode.NONE]
        # A killed broker would be known, at its address, until it is expired.
        open_broker.stop()


@pytest.mark.timeout(300 + 20 * KILLS)
@pytest.mark.usefixtures("own_victim")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_change_of_tokens_survives_kill_9_whole_or_not_at_all(
    tmp_path: Path, workers: int
) -> None:
    chance, pause = random.Random(workers), Event()
    add_user(tmp_path / "data")
    with SaslBroker(tmp_path / "data", workers=workers) as broker:
        for _ in range(KILLS):
            changer = TokenChanger(broker)
            wait_until(lambda: changer.changes > 6)  # noqa: B023 (it is called at once)
            pause.wait(chance.random() * 0.1)  # the random moment
            broker.kill()
            changer.stop()
            broker.start()
            asyncio.run(check(broker, changer))
            asyncio.run(remove_all(broker))
