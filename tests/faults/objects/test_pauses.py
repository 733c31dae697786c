"""Processes that pause beyond their lease and the sweep do no harm when they resume."""

from __future__ import annotations

import pytest

from rookery.testing.backends import ETCD, STORE
from rookery.testing.probe import brokers_seen
from rookery.testing.s3proxy import Rule, S3Fault
from rookery.testing.wait import wait_until
from tests.crash.hosts import wait_until_clean
from tests.crash.killing import PARTITIONS, TOPIC, create_topic
from tests.crash.load import Load, verify
from tests.faults.objects.asking import create, produce
from tests.faults.objects.scene import Scene, load_until

SEED = 21
FOR_EVER_MS = 3_600_000.0
# Clients must not wait for the paused process longer than needed.
IMPATIENT = {"socket_timeout_ms": 5_000, "request_timeout_ms": 4_000}


@pytest.mark.parametrize("kind", [ETCD, STORE])
def test_broker_paused_while_its_upload_is_swept_loses_nothing(scene: Scene) -> None:
    # Peer: the owner that came back overwrote what the second one had acknowledged.
    sleepy = scene.hosts(
        1, "--caretaker", "off", "--inline-bytes", "0", store=scene.proxied(timeout_ms="3000")
    )
    create(sleepy.bootstrap, "first")
    produce(sleepy.bootstrap, "first", b"a record")
    [key] = scene.keys("/objects/")
    own = key.rpartition("/")[0]
    other = scene.hosts(1, "--caretaker", "off", "--inline-bytes", "0")
    create_topic(other.bootstrap)
    addresses = f"{sleepy.bootstrap},{other.bootstrap}"
    with Load(addresses, TOPIC, PARTITIONS, SEED, **IMPATIENT) as load:
        load.wait_for(5)
        scene.proxy.add(Rule(S3Fault.DELAY, "PUT", "/objects/", times=1, delay_ms=FOR_EVER_MS))
        scene.proxy.wait_for_faults()
        sleepy[0].pause()
        wait_until(lambda: len(brokers_seen(other[0].port)) == 1, "the sleeper's end")
        scene.caretaker()
        # All of it is moved elsewhere by then, and what was not committed is an orphan.
        wait_until(lambda: not scene.keys(own), "the sweep")
        load.wait_for(20)

        sleepy[0].resume()

        wait_until(lambda: len(brokers_seen(other[0].port)) == 2, "the sleeper's return")
        load.wait_for(20)
    assert "joins again" in sleepy[0].words()
    for hosts in (sleepy, other):
        verify(hosts.bootstrap, load)
    wait_until_clean(other)


@pytest.mark.parametrize("path", [".kfs", "/objects/"])
def test_caretaker_paused_while_another_works_does_no_damage(scene: Scene, path: str) -> None:
    hosts = scene.hosts(1, "--caretaker", "off")
    create_topic(hosts.bootstrap)
    sleeper = scene.caretaker(scene.proxied(timeout_ms="3000"))
    with Load(hosts.bootstrap, TOPIC, PARTITIONS, SEED) as load:
        scene.proxy.add(Rule(S3Fault.DELAY, "PUT", path, times=1, delay_ms=FOR_EVER_MS))
        scene.proxy.wait_for_faults()
        sleeper.pause()
        wait_until(lambda: "is expired" in hosts[0].words(), "the sleeper's end")
        other = scene.caretaker()
        load_until(load, lambda: len(scene.keys(".kfs")) > 4, "segments of the other")

        sleeper.resume()

        # It is fenced and reports that, and its broker would start a new one.
        assert sleeper.ended() != 0
        other.wait_for_rounds(2)
        load.wait_for(5)
    verify(hosts.bootstrap, load)
    wait_until_clean(hosts)


@pytest.mark.parametrize("kind", [ETCD, STORE])
def test_two_concurrent_caretakers_do_no_damage(scene: Scene) -> None:
    hosts = scene.hosts(1, "--caretaker", "off")
    create_topic(hosts.bootstrap)
    both = [scene.caretaker(), scene.caretaker()]
    with Load(hosts.bootstrap, TOPIC, PARTITIONS, SEED) as load:
        load_until(load, lambda: len(scene.keys(".kfs")) > 4, "segments")
        for caretaker in both:
            caretaker.wait_for_rounds(2)
        verify(hosts.bootstrap, load)
    verify(hosts.bootstrap, load)
    wait_until_clean(hosts)
    # Although two caretakers compete, some rows are rewritten.
    assert any(report["rewritten_bytes"] for caretaker in both for report in caretaker.reports())
