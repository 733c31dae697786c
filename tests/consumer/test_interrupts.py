"""Interrupts between any two lines of a reader: nothing hangs, and nothing is lost."""

import json
import os
import subprocess
import sys

from rookery.testing.kafkalogs import NOON, Logs, rows

WITHIN = 120
ROWS = 600

# Sends a process an interrupt every millisecond, about. It is a process itself, since a
# thread would do it only while the other one waits.
NAGGING = """
import os, random, sys, time
while True:
    time.sleep(random.random() * 0.002)
    os.kill(int(sys.argv[1]), 2)
"""

HARNESS = """
import json, os, signal, subprocess, sys, rookery

is_armed = False

def take(*_):
    global is_armed
    if is_armed:
        is_armed = False
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, take)
nagging = subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1], str(os.getpid())])
"""

READING = (
    HARNESS
    + """
made = lambda start: rookery.read(*sys.argv[2:4], start=start, batch_rows=5).open()
stream, place = made("earliest"), "earliest"
seen, count, refused = [], 0, 0
while not stream.is_finished:
    try:
        is_armed = True
        batch = stream.poll(50)
        is_armed = False
    except KeyboardInterrupt:
        count += 1
        continue
    except rookery.consumer.faults.Misuse:
        is_armed = False
        refused += 1
        stream.close()
        stream = made(place)
        continue
    if batch is not None:
        seen += zip(batch["offset"].to_pylist(), batch["partition"].to_pylist())
        place = batch.checkpoint
stream.close()
nagging.kill()
nagging.wait()
print(json.dumps({"seen": seen, "count": count, "refused": refused}))
"""
)

WAITING = (
    HARNESS
    + """
count = 0
for _ in range(20):
    with rookery.follow(*sys.argv[2:4]) as stream:
        for _ in range(200):
            try:
                is_armed = True
                stream.poll(50)
                is_armed = False
            except KeyboardInterrupt:
                count += 1
            except rookery.consumer.faults.Misuse:
                is_armed = False
                break
nagging.kill()
nagging.wait()
print(json.dumps({"count": count}))
"""
)


def run(program: str, *args: str) -> dict[str, object]:
    # With pipes, a leftover nagger would keep the test waiting until its target is gone.
    done = subprocess.run(
        [sys.executable, "-c", program, NAGGING, *args],
        capture_output=True,
        text=True,
        timeout=WITHIN,
        env={**os.environ, "PYTHONPATH": "src"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert isinstance(report, dict)
    return report


def test_interrupted_stream_closes(topics: Logs) -> None:
    topic = topics.create("nagged", 2)
    topics.write(topic, 0, rows([NOON]))

    report = run(WAITING, topics.bootstrap, topic)

    assert isinstance(report["count"], int)
    assert report["count"] > 20


def test_interrupted_reader_sees_every_row_once(topics: Logs) -> None:
    topic = topics.create("seen", 2)
    for partition in range(2):
        times = [NOON + 2 * n + partition for n in range(ROWS // 2)]
        topics.write(topic, partition, rows(times), size=50)

    report = run(READING, topics.bootstrap, topic)

    assert report["seen"] == [[n, partition] for n in range(ROWS // 2) for partition in range(2)]
    assert isinstance(report["count"], int)
    assert report["count"] > 20
