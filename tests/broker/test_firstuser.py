"""The first user of a secure broker: it is created once, and its removal is final."""

from __future__ import annotations

import logging
from itertools import count
from pathlib import Path

import pytest

from rookery.broker.process import firstuser
from rookery.broker.process.firstuser import (
    ADMIN,
    create_first_user,
    created_file,
    password_file,
)
from rookery.clock import SystemRandom
from rookery.cluster.events.brokerevents import BrokerRegistered, ClusterCreated
from rookery.cluster.events.securityevents import ScramChange, ScramCredentialsChanged
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.cluster.state.rules.securityrules import SECURITY
from rookery.security.privatefile import create_private
from rookery.testing.clock import ManualClock

_names = count(1)


class SecuredCluster:
    """A cluster whose data folder has a password, without a broker."""

    def __init__(self, folder: Path) -> None:
        self.data = str(folder)
        self.replica = Replica(open_log(f"memory:firstuser-{next(_names)}"), ManualClock())
        create_private(password_file(self.data), b"secret\n")

    async def create(self, level: int = SECURITY) -> None:
        await self.replica.open()
        await self.replica.create_cluster(ClusterCreated(cluster_id="c", feature_level=level))
        event = BrokerRegistered(process_id=bytes(16), node_id=1, host="h", port=1)
        await self.replica.register(event)

    async def start(self) -> list[str]:
        """Do what a broker does on its start; return the users after it."""
        await create_first_user(self.replica, self.data, SystemRandom())
        return sorted(self.replica.state.security.scram)

    async def add(self, user: str) -> None:
        change = ScramChange(
            mechanism=1, iterations=4096, salt=b"s", stored_key=bytes(32), server_key=bytes(32)
        )
        await self.replica.propose([ScramCredentialsChanged(user=user, changes=[change])])

    async def remove(self, user: str) -> None:
        changes = [
            ScramChange(mechanism=number, iterations=0, salt=b"", stored_key=b"", server_key=b"")
            for number in self.replica.state.security.scram[user]
        ]
        await self.replica.propose([ScramCredentialsChanged(user=user, changes=changes)])


@pytest.fixture
async def cluster(tmp_path: Path) -> SecuredCluster:
    cluster = SecuredCluster(tmp_path)
    await cluster.create()
    return cluster


async def test_a_new_cluster_gets_its_first_user(cluster: SecuredCluster) -> None:
    assert await cluster.start() == [ADMIN]
    assert await cluster.start() == [ADMIN]


async def test_a_removed_admin_is_not_created_again(
    cluster: SecuredCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.start()
    await cluster.remove(ADMIN)

    users = await cluster.start()

    assert users == []
    assert "has no users" in caplog.text
    assert str(created_file(cluster.data)) in caplog.text


async def test_deleting_the_mark_lets_the_owner_of_the_folder_in_again(
    cluster: SecuredCluster,
) -> None:
    await cluster.start()
    await cluster.remove(ADMIN)
    created_file(cluster.data).unlink()

    assert await cluster.start() == [ADMIN]


async def test_users_of_an_earlier_start_count_as_set_up(cluster: SecuredCluster) -> None:
    await cluster.add("jackdaw")
    first = await cluster.start()
    await cluster.remove("jackdaw")

    assert (first, await cluster.start()) == (["jackdaw"], [])


async def test_a_removed_admin_is_not_missed_while_there_are_others(
    cluster: SecuredCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.start()
    await cluster.add("jackdaw")
    await cluster.remove(ADMIN)
    caplog.set_level(logging.INFO)
    caplog.clear()

    assert await cluster.start() == ["jackdaw"]
    assert not [record for record in caplog.records if record.name == firstuser.__name__]


async def test_a_cluster_of_a_lower_level_gets_its_first_user_later(tmp_path: Path) -> None:
    cluster = SecuredCluster(tmp_path)
    await cluster.create(SECURITY - 1)

    assert await cluster.start() == []
    assert not created_file(cluster.data).exists()
