"""kill -9 of the caretaker in every step of rewriting, sweeping, snapshots and trimming."""

from __future__ import annotations

import pytest

from rookery.testing.backends import ETCD, STORE
from rookery.testing.s3proxy import Rule, S3Fault
from tests.crash.hosts import wait_until_clean
from tests.crash.killing import PARTITIONS, TOPIC, create_topic
from tests.crash.load import Load, check, read_all, verify
from tests.faults.objects.scene import Scene

SEED = 20
NOTHING: list[list[int]] = [[] for _ in range(PARTITIONS)]
FOR_EVER_MS = 3_600_000.0
# Every request of the caretaker that changes something, in the order in which it makes them.
STEPS = {
    "merge": ("PUT", "/objects/"),
    "index": ("PUT", ".index"),
    "times": ("PUT", ".times"),
    "segment": ("PUT", ".kfs"),
    "snapshot": ("PUT", "/snapshots/"),
    # Snapshots, objects and entries are deleted alike: three times, to meet most of them.
    **{f"delete {number}": ("POST", "?delete") for number in range(3)},
}
# Where the cluster log is in the store, too; what does not touch it is the same as above.
LOG_STEPS = {
    "append": ("PUT", "/log/0"),
    "merge": ("PUT", "/objects/"),
    "snapshot": ("PUT", "/snapshots/"),
    "floor": ("PUT", "/log/floor"),
    "delete": ("POST", "?delete"),
}
# Otherwise a caretaker could be expired on a busy machine, and no broker would start another.
PATIENT = ("--session-timeout-ms", "20000")
# Held before it is done, or done and the answer held.
WHEN = {"before": S3Fault.ERROR, "after": S3Fault.DELAY}


@pytest.mark.parametrize("kind", [ETCD, STORE])
def test_caretaker_can_be_killed_at_any_step(scene: Scene) -> None:
    steps, segment_bytes = (STEPS, 400_000) if scene.kind == ETCD else (LOG_STEPS, 1 << 28)
    hosts = scene.hosts(1, "--caretaker", "off", *PATIENT)
    create_topic(hosts.bootstrap)
    caretaker = scene.caretaker(scene.proxied(), segment_bytes)
    with Load(hosts.bootstrap, TOPIC, PARTITIONS, SEED) as load:
        before = NOTHING
        for step, (method, path) in steps.items():
            for when, fault in WHEN.items():
                since = scene.proxy.befallen
                scene.proxy.add(Rule(fault, method, path, times=1, delay_ms=FOR_EVER_MS))
                scene.proxy.wait_for_faults(1, since)
                caretaker.kill()
                scene.proxy.clear()
                acked = load.acked()

                now = read_all(hosts.bootstrap, TOPIC, PARTITIONS, before)

                check(before, now, acked)
                before = now
                print(f"{step}, {when}: as promised")  # noqa: T201 (shown if it fails)
                caretaker.start()
    caretaker.wait_for_rounds()

    verify(hosts.bootstrap, load, before)
    assert scene.keys(".kfs" if scene.kind == ETCD else "/objects/")
    wait_until_clean(hosts)
