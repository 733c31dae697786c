"""The servers that brokers use die and return: writes continue, and nothing is lost."""

from __future__ import annotations

import pytest

from rookery.testing.backends import ETCD, STORE
from tests.crash.hosts import wait_until_clean
from tests.crash.killing import PARTITIONS, TOPIC, create_topic
from tests.crash.load import Load, verify
from tests.faults.objects.scene import Scene

SEED = 23


@pytest.mark.parametrize("kind", [ETCD, STORE])
def test_restart_of_the_store_loses_nothing(scene: Scene) -> None:
    hosts = scene.hosts(2)
    create_topic(hosts.bootstrap)
    with Load(hosts.bootstrap, TOPIC, PARTITIONS, SEED) as load:
        load.wait_for(20)
        seaweed = scene.backend.seaweed
        # It is stopped in order: a killed store loses unsynced data, which is not tested here.
        seaweed.stop()
        seaweed.start()
        load.wait_for(20)
    verify(hosts.bootstrap, load)
    wait_until_clean(hosts)


@pytest.mark.parametrize("how", ["kill", "stop", "pause"])
def test_restart_of_the_cluster_log_loses_nothing(scene: Scene, how: str) -> None:
    hosts = scene.hosts(2)
    create_topic(hosts.bootstrap)
    etcd = scene.backend.etcd
    assert etcd is not None
    [member] = etcd.members
    with Load(hosts.bootstrap, TOPIC, PARTITIONS, SEED) as load:
        load.wait_for(20)
        getattr(member, how)()
        if how == "pause":
            # Longer than a session, so that all could consider each other dead.
            scene.rest(5.0)
            member.resume()
        else:
            member.launch()
            member.wait_ready()
        load.wait_for(20)
    verify(hosts.bootstrap, load)
    wait_until_clean(hosts)
