"""The clients, each in a process of its own: `clients.py '{"kind": "produce", …}'` prints JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import Any, Final

from rookery.client.connect.login import log_in
from rookery.client.connect.versions import negotiate
from rookery.client.settings import Sasl
from rookery.clock import SystemRandom
from rookery.errors import Error
from rookery.net.loop import run_loop
from rookery.net.settings import UpstreamSettings
from rookery.net.upstream import Upstream, connect
from rookery.security.mechanisms import scram
from rookery.security.tls import ClientTls, client_context

Config = dict[str, Any]
Figures = dict[str, float]

TIMEOUT_MS: Final = 60_000
RETRY_SECONDS: Final = 0.1
STORM_SECONDS: Final = 120
BUSY_IN_FLIGHT: Final = 64
WARM_UP_SECONDS: Final = 1.0


# librdkafka.


def produce(config: Config, topic: str, count: int, size: int) -> Figures:
    """Produce as fast as librdkafka can."""
    from confluent_kafka import Producer  # noqa: PLC0415

    limits = {"queue.buffering.max.kbytes": 1_000_000, "queue.buffering.max.messages": 2_000_000}
    producer = Producer({**config, **limits, "acks": "all", "linger.ms": 5})
    value, errors = os.urandom(size), []
    producer.produce(topic, value=value, partition=0)
    producer.flush()

    def check(error: object, _message: object) -> None:
        if error is not None:
            errors.append(error)

    start = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value=value, partition=number % 4, on_delivery=check)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    spent = time.perf_counter() - start
    if errors:
        raise SystemExit(f"{len(errors)} records failed: {errors[0]}")
    return {"records/s": count / spent, "MB/s": count * size / spent / 1e6}


def consume(config: Config, topic: str, count: int, size: int) -> Figures:
    """Consume from the beginning, with a short rest when the client's queue is full."""
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415

    own = {"group.id": "bench", "enable.auto.commit": False, "fetch.queue.backoff.ms": 2}
    consumer = Consumer({**config, **own})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(4)])
    received, start = 0, 0.0
    while received < count:
        messages = consumer.consume(10_000, 30)
        if not messages:
            raise SystemExit(f"only {received} of {count} records came")
        start = start or time.perf_counter()
        received += len(messages)
    spent = time.perf_counter() - start
    consumer.close()
    return {"records/s": received / spent, "MB/s": received * size / spent / 1e6}


def trickle(config: Config, topic: str, rate: int, seconds: float) -> Figures:
    """Produce small records at a steady rate, and time each until its acknowledgement."""
    from confluent_kafka import Producer  # noqa: PLC0415

    producer = Producer({**config, "acks": "all", "linger.ms": 0, "socket.nagle.disable": True})
    producer.produce(topic, value=b"-", partition=0)
    producer.flush()
    times: list[float] = []
    start = time.perf_counter()
    for number in range(int(rate * (seconds + WARM_UP_SECONDS))):
        due = start + number / rate
        while (left := due - time.perf_counter()) > 0:
            producer.poll(left)

        def note(error: object, _message: object, began: float = due) -> None:
            if error is not None:
                raise SystemExit(f"a record failed: {error}")
            times.append(time.perf_counter() - began)

        producer.produce(topic, value=bytes(100), partition=number % 4, on_delivery=note)
    producer.flush()
    return percentiles(times[int(rate * WARM_UP_SECONDS) :])


# Logins, by our own client.


class Door:
    """Logs in to one broker repeatedly.

    The client remembers the salted password, as RFC 5802 allows. Otherwise 200 logins per second
    would take a core of the client's machine, which here is also the broker's.
    """

    def __init__(self, config: Config) -> None:
        host, _, port = config["bootstrap.servers"].rpartition(":")
        self._host, self._port = host, int(port)
        self._tls = client_context(ClientTls(ca_file=config["ssl.ca.location"]))
        self._sasl = Sasl(
            config["sasl.mechanism"], config["sasl.username"], config["sasl.password"]
        )
        self._settings = UpstreamSettings(connect_timeout_ms=TIMEOUT_MS)
        scram.salted_password = lru_cache(scram.salted_password)
        self.failed = 0

    async def enter(self) -> Upstream:
        """Connect and log in, as clients do: versions first."""
        line = await connect(self._host, self._port, self._settings, tls=self._tls)
        try:
            versions = await negotiate(line, "bench", {}, TIMEOUT_MS)
            await log_in(line, versions, self._sasl, SystemRandom(), TIMEOUT_MS)
        except BaseException:
            line.close()
            raise
        return line

    async def enter_surely(self) -> Upstream:
        """Try until it succeeds; count the failures."""
        while True:
            try:
                return await self.enter()
            except Error:
                self.failed += 1
                await asyncio.sleep(RETRY_SECONDS)


async def logins(config: Config, rate: int, seconds: float) -> Figures:
    """Log in at a steady rate, whether or not earlier logins are done, and leave."""
    door, times = Door(config), []
    loop = asyncio.get_running_loop()
    # The first login salts the password.
    (await door.enter()).close()
    start = loop.time()

    async def visit(due: float) -> None:
        try:
            line = await door.enter()
        except Error:
            door.failed += 1
            return
        times.append(loop.time() - due)
        line.close()

    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            due = start + number / rate
            await asyncio.sleep(due - loop.time())
            group.create_task(visit(due))
    spent = loop.time() - start
    return {
        "logins": len(times),
        "logins/s": len(times) / spent,
        "failed": door.failed,
        **percentiles(times),
    }


async def storm(config: Config, count: int) -> Figures:
    """Connect with all clients at once; each stays."""
    door = Door(config)
    (await door.enter()).close()
    loop, start = asyncio.get_running_loop(), time.perf_counter()
    times: list[float] = []

    async def arrive() -> Upstream:
        line = await door.enter_surely()
        times.append(time.perf_counter() - start)
        return line

    async with asyncio.timeout_at(loop.time() + STORM_SECONDS):
        lines = await asyncio.gather(*(arrive() for _ in range(count)))
    spent = max(times)
    for line in lines:
        line.close()
    return {"seconds": spent, "failed": door.failed, **percentiles(times)}


async def busy(config: Config, count: int, seconds: float) -> Figures:
    """Ask for the versions without a pause, with many requests in flight on each connection."""
    door, done = Door(config), [0]
    lines = [await door.enter() for _ in range(count)]
    loop = asyncio.get_running_loop()
    start = loop.time()

    async def ask(line: Upstream) -> None:
        while loop.time() < start + seconds:
            await negotiate(line, "bench", {}, TIMEOUT_MS)
            done[0] += 1

    await asyncio.gather(*(ask(line) for line in lines for _ in range(BUSY_IN_FLIGHT)))
    for line in lines:
        line.close()
    return {"requests/s": done[0] / (loop.time() - start)}


def percentiles(times: list[float]) -> Figures:
    """Return the middle and the slow end, in milliseconds."""
    ordered = sorted(times)
    return {
        "p50 ms": ordered[len(ordered) // 2] * 1e3,
        "p99 ms": ordered[int(len(ordered) * 0.99)] * 1e3,
    }


BLOCKING: dict[str, Callable[..., Figures]] = {
    "produce": produce, "consume": consume, "trickle": trickle,
}  # fmt: skip
ASYNC: dict[str, Callable[..., Coroutine[Any, Any, Figures]]] = {
    "logins": logins, "storm": storm, "busy": busy,
}  # fmt: skip


def main() -> None:
    """Be one client and print its figures."""
    task = json.loads(sys.argv[1])
    kind = task.pop("kind")
    figures = BLOCKING[kind](**task) if kind in BLOCKING else run_loop(ASYNC[kind](**task))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
