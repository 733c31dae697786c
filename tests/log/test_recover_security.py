"""Access rules, users and quotas after the loss of the cluster log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rookery.cluster.events.securityevents import AclsCreated, ScramCredentialsChanged
from rookery.cluster.state.images.securityimage import security_image
from rookery.formats.keys import CLUSTER, snapshot_key
from rookery.log.check.check import check
from rookery.log.check.fault import FaultKind
from rookery.log.maintain import snapshots
from rookery.log.maintain.caretaker import Caretaker
from rookery.log.settings import CareSettings
from tests.cluster.test_security_state import SECRET, credential, quota_change, rule_row
from tests.cluster.test_token_state import token_event
from tests.log.site import Site, batch
from tests.log.test_recover import recover


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    yield site
    await site.close()


async def test_access_control_of_the_snapshot_is_recovered(site: Site) -> None:
    writer = await site.begin()
    await writer.replica.propose(
        [
            AclsCreated(rules=[rule_row()]),
            ScramCredentialsChanged(user="u", changes=[credential(1)]),
            quota_change("producer_byte_rate", 10.0, [("user", "u")]),
            token_event("a"),
        ]
    )
    before = security_image(writer.replica.state.security)
    await snapshots.save(site.store, writer.replica.state)
    # Later changes are only in the log.
    await writer.replica.propose([AclsCreated(rules=[rule_row("later")])])
    await writer.write(batch(0))

    await recover(site)

    replica = await site.open()
    assert before
    assert security_image(replica.state.security) == before


async def test_access_control_is_part_of_a_check(site: Site) -> None:
    writer = await site.begin()
    await writer.replica.propose(
        [
            AclsCreated(rules=[rule_row()]),
            ScramCredentialsChanged(user="planted", changes=[credential(1)]),
            token_event("a"),
        ]
    )
    number = await snapshots.save(site.store, writer.replica.state)
    assert (await check(site.sources)).is_clean

    image = await site.store.read(snapshot_key(number))
    # The name of the user is in the image of the credentials, which is not compressed.
    damaged = image.replace(b"planted", b"altered")
    assert damaged != image
    await site.put(snapshot_key(number), damaged)

    [fault] = (await check(site.sources)).faults
    assert (fault.kind, fault.key) == (FaultKind.SNAPSHOT, snapshot_key(number))
    assert SECRET.decode(errors="replace") not in str(fault)


async def test_access_control_is_lost_without_a_snapshot(site: Site) -> None:
    writer = await site.begin()
    await site.store.create(CLUSTER, [b"c"])
    await writer.replica.propose([AclsCreated(rules=[rule_row()])])
    await writer.write(batch(0))

    await recover(site)

    replica = await site.open()
    assert security_image(replica.state.security) == []


async def test_changes_of_access_control_make_a_snapshot_due(site: Site) -> None:
    writer = await site.begin()
    settings = CareSettings(snapshot_age_ms=60_000)
    made = Caretaker(writer.replica, site.log, site.store, site.clock, settings)
    site.clock.advance(60_000)
    assert not await made.is_behind()

    await writer.replica.propose([ScramCredentialsChanged(user="u", changes=[credential(1)])])

    assert await made.is_behind()
