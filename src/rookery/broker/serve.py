"""One broker process from its start to its end: serve until told to stop, then drain and leave.

    start ──► ready ──► a signal, or the broker cannot go on ──► drain ──► leave ──► exit code

A second signal ends the process at once: what was acknowledged is durable, so that is safe.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rookery.broker.broker import Broker
from rookery.broker.observe import Observer, serve_http
from rookery.broker.settings import BrokerSettings
from rookery.errors import ConfigError
from rookery.model.address import Address, parse_address
from rookery.net.http import HttpServer
from rookery.records import heap
from rookery.store.open import name_of

log = logging.getLogger(__name__)

OK: Final = 0
FAILED: Final = 1
# As for Kafka, whose JVM ends in order after each of these.
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# What comes after the drain, besides it: the last entry, the last sync.
_LEAVE_SECONDS: Final = 0.8
_GIVE_UP_SECONDS: Final = 3.0
# A start that takes longer reports what it waits for, first after this and then at this interval.
_FIRST_REPORT_SECONDS: Final = 3.0
_REPORT_SECONDS: Final = 15.0
# Requests make many objects that live shortly; looking through all that live for long, which the
# default of 700 does often, costs more than half of what a large request costs otherwise. A look at
# the young ones, and soon after at their survivors, stops the process for a millisecond or two;
# one at all, which takes as long as the caches are large, is hardly ever worth it: requests leave
# no cycles behind.
_GC_THRESHOLDS: Final = (10_000, 2, 1000)
# A thread that has bytes to sync, or has synced them, waits no longer for the interpreter. Python's
# own 5 ms are more than all else that a small produce takes.
_SWITCH_SECONDS: Final = 0.0005


@dataclass(frozen=True, slots=True)
class Served:
    """What a broker that is ready tells of itself."""

    node_id: int
    address: str
    """Where clients connect."""
    http: str
    """Where metrics and health are, empty if nowhere."""
    cluster_id: str
    data: str
    """Where the log is: a folder, or the URL of a store."""
    durability: str
    """What an acknowledged record has survived: "disk", "os", or "store"; "none" if none is."""
    pid: int

    def as_json(self) -> dict[str, object]:
        """Return it for scripts, and for the process that supervises this one."""
        return asdict(self)


class Stop:
    """The wish to stop, whoever has it."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def on_signals(self) -> None:
        """Have the usual signals say it; the second one ends the process at once."""
        for one in SIGNALS:
            # `nohup` has the process ignore the end of its terminal.
            if signal.getsignal(one) is not signal.SIG_IGN:
                self._loop.add_signal_handler(one, self._signalled, one)

    def _signalled(self, one: signal.Signals) -> None:
        if self.wanted.is_set():
            log.warning("stopping at once, after a second signal", extra={"signal": one.name})
            os._exit(FAILED)
        log.info("stopping", extra={"signal": one.name})
        self.wanted.set()


async def serve(settings: BrokerSettings, stop: Stop, when_ready: Callable[[Served], None]) -> int:
    """Run a broker until it shall stop, or cannot go on; return the exit code.

    Raises:
        ConfigError: a setting cannot be used.
        Unavailable: the folder's cluster log is out of reach.
        Corrupt: the folder holds what this version cannot read.
    """
    if not settings.store and not settings.log_dir:
        check_folder(settings.data)
    # Until here a signal has its default effect: nothing is begun that would have to be ended.
    broker = Broker(settings)
    stop.on_signals()
    observer = Observer(broker)
    # First, so that a taken port is told before the cluster hears of this broker, and so that
    # somebody answers while a long log is read.
    http = None
    try:
        http = await serve_http(observer, settings.http_listen)
        if not await _start(broker, stop):
            await give_up(broker, http)
            return OK
    except BaseException:
        await give_up(broker, http)
        raise
    observer.is_started = True
    heap.keep()
    # What lives now lives as long as the process: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    sys.setswitchinterval(_SWITCH_SECONDS)
    when_ready(_served(broker, http))
    code = await _until_stop(broker, stop)
    return max(code, await _leave(broker, http))


async def _start(broker: Broker, stop: Stop) -> bool:
    """Start a broker; return False if it was asked to stop before it was ready."""
    start = asyncio.create_task(broker.start())
    report = asyncio.create_task(_report_start(broker))
    stopped = asyncio.create_task(stop.wanted.wait())
    try:
        await asyncio.wait({start, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if start.done():
            await start
        return start.done()
    finally:
        for task in (start, report, stopped):
            task.cancel()
        await asyncio.gather(start, report, stopped, return_exceptions=True)


async def _report_start(broker: Broker) -> None:
    seconds = _FIRST_REPORT_SECONDS
    while True:
        await asyncio.sleep(seconds)
        log.warning("still starting: %s", broker.waits_for())
        seconds = _REPORT_SECONDS


def check_folder(data: str) -> None:
    """Refuse a data folder that cannot be used, before anything is begun.

    Raises:
        ConfigError: it cannot be made or written.
    """
    folder = Path(data).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is not a folder" if folder.exists() else error.strerror
        raise ConfigError(
            f"data: cannot use the folder {folder}: {reason}; name another with --data"
        ) from error
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(
            f"data: the folder {folder} may not be written; change its permissions or name "
            "another with --data"
        )


def _served(broker: Broker, http: HttpServer | None) -> Served:
    settings = broker.settings
    text = settings.advertise or settings.listen
    address = parse_address(text, "listen", lowest_port=0)
    port = address.port if settings.advertise else broker.listener.port
    return Served(
        node_id=broker.services.node_id,
        address=Address(address.host, port).text,
        http=Address(http.settings.host, http.port).text if http else "",
        cluster_id=broker.replica.state.cluster_id,
        data=name_of(settings.store) or str(Path(settings.log_dir or settings.data).absolute()),
        durability=_durability(settings),
        pid=os.getpid(),
    )


def _durability(settings: BrokerSettings) -> str:
    if settings.read_only:
        return "none"
    return "store" if settings.store else settings.durability


async def _until_stop(broker: Broker, stop: Stop) -> int:
    broker.failed.add_done_callback(lambda _: stop.wanted.set())
    await stop.wanted.wait()
    if not broker.failed.done():
        return OK
    log.error("the broker cannot go on: %s", broker.failed.exception())
    return FAILED


async def give_up(broker: Broker, http: HttpServer | None) -> None:
    """Close what a start that failed has opened: an open port could keep the loop from closing."""
    try:
        async with asyncio.timeout(_GIVE_UP_SECONDS):
            if http is not None:
                await http.stop(grace_ms=0)
            await asyncio.gather(*(listener.stop(grace_ms=0) for listener in broker.listeners))
            await broker.replica.close()
            await broker.cluster_log.close()
            broker.node_lock.close()
    except TimeoutError:
        log.critical("could not close what the start had opened; ending all the same")
        os._exit(FAILED)


async def _leave(broker: Broker, http: HttpServer | None) -> int:
    """Stop in order, within a bound: a disk that hangs shall not keep the process for ever."""
    seconds = broker.settings.drain_timeout_ms / 1000 + _LEAVE_SECONDS
    try:
        async with asyncio.timeout(seconds):
            await broker.stop()
            # Last, so that it tells until the end that the broker is draining.
            if http is not None:
                await http.stop(grace_ms=100)
    except TimeoutError:
        log.critical("could not stop in order within %.1f s; ending all the same", seconds)
        # Not by returning: the loop would wait for the thread that hangs.
        os._exit(FAILED)
    log.info("stopped")
    return OK
