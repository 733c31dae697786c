"""A store that fails, returns wrong results or is slow: no lost record was acknowledged."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rookery.errors import ErrorCode
from rookery.testing.backends import ETCD, STORE
from rookery.testing.s3proxy import Rule, S3Fault
from rookery.testing.wait import wait_until
from tests.crash.hosts import wait_until_clean
from tests.crash.killing import PARTITIONS, TOPIC, create_topic
from tests.crash.load import Load, verify
from tests.faults.objects.asking import OK, create, produce, values
from tests.faults.objects.scene import Scene, load_until

SEED = 22
BAD_DAY = (
    Rule(S3Fault.ERROR, rate=0.1, status=500),
    Rule(S3Fault.ERROR, rate=0.1, status=503),
    Rule(S3Fault.SWALLOW, method="PUT", rate=0.1),
    Rule(S3Fault.DROP, rate=0.05),
    Rule(S3Fault.DELAY, rate=0.1, delay_ms=300),
)


@pytest.mark.parametrize("kind", [ETCD, STORE])
def test_mixed_store_faults_lose_nothing(scene: Scene) -> None:
    hosts = scene.hosts(2, store=scene.proxied(timeout_ms="3000"))
    create_topic(hosts.bootstrap)
    with Load(hosts.bootstrap, TOPIC, PARTITIONS, SEED) as load:
        load.wait_for(5)
        scene.proxy.add(*BAD_DAY)
        scene.proxy.wait_for_faults(80)
        verify(hosts.bootstrap, load)
        scene.proxy.clear()
        load.wait_for(5)
    verify(hosts.bootstrap, load)
    wait_until_clean(hosts)
    assert all(scene.proxy.proxy.faults[fault] for fault in S3Fault)


@pytest.mark.parametrize("kind", [ETCD, STORE])
def test_no_record_of_a_failed_upload_is_acknowledged(scene: Scene) -> None:
    # Peer: of seven requests in one failed flush five were acknowledged, and are unreadable.
    hosts = scene.hosts(
        1, "--inline-bytes", "0", store=scene.proxied(timeout_ms="500", deadline_ms="1000")
    )
    create(hosts.bootstrap, "t")
    sent = [b"%d" % number * 20_000 for number in range(7)]
    scene.proxy.add(Rule(S3Fault.ERROR, "PUT", "/objects/", status=500))
    with ThreadPoolExecutor(len(sent)) as pool:
        answers = list(pool.map(lambda value: produce(hosts.bootstrap, "t", value), sent))
    assert {answer.error_code for answer in answers} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert values(hosts.bootstrap, "t") == []
    scene.proxy.clear()

    with ThreadPoolExecutor(len(sent)) as pool:
        answers = list(pool.map(lambda value: produce(hosts.bootstrap, "t", value), sent))

    assert [answer.error_code for answer in answers] == [OK] * len(sent)
    assert sorted(values(hosts.bootstrap, "t")) == sorted(sent)
    wait_until_clean(hosts)


def test_burst_of_failed_uploads_is_reported_with_its_cause(scene: Scene) -> None:
    # Peer: the whole broker refuses produce and fetch for a minute after one burst.
    hosts = scene.hosts(1, store=scene.proxied())
    create(hosts.bootstrap, "t")
    assert produce(hosts.bootstrap, "t", b"before").error_code is OK
    since = scene.proxy.befallen
    scene.proxy.add(Rule(S3Fault.ERROR, "PUT", "/objects/", status=503))
    with ThreadPoolExecutor(20) as pool:
        waiting = [pool.submit(produce, hosts.bootstrap, "t", b"meanwhile") for _ in range(20)]
        scene.proxy.wait_for_faults(10, since)
        # Reads continue.
        assert values(hosts.bootstrap, "t") == [b"before"]
        scene.proxy.clear()
        wait_until(lambda: produce(hosts.bootstrap, "t", b"after").error_code is OK, "an answer")
        acked = [answer.result().error_code is OK for answer in waiting].count(True)
    stored = values(hosts.bootstrap, "t")
    assert stored.count(b"meanwhile") == acked
    assert stored.count(b"after") == 1
    wait_until_clean(hosts)


def has_problem(last: list[dict[str, Any]]) -> bool:
    """Return whether the caretaker's last round has reported something that it skips."""
    return bool(last) and last[0]["quarantined"] > 0


def test_caretaker_survives_a_failing_store(scene: Scene) -> None:
    hosts = scene.hosts(1, "--caretaker", "off")
    create_topic(hosts.bootstrap)
    caretaker = scene.caretaker(scene.proxied(timeout_ms="300", deadline_ms="500"))
    with Load(hosts.bootstrap, TOPIC, PARTITIONS, SEED) as load:
        scene.proxy.add(Rule(S3Fault.ERROR, "PUT", ".kfs", status=503))
        wait_until(lambda: caretaker.reports()[-1:], accepts=has_problem)
        scene.proxy.clear()
        caretaker.wait_for_rounds(2)
        load_until(load, lambda: len(scene.keys(".kfs")) > 4, "segments")
    verify(hosts.bootstrap, load)
    wait_until_clean(hosts)
