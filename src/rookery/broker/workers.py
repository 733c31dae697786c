"""Several broker processes under one: started, restarted when they die, stopped together.

    listen   127.0.0.1:9092   shared by all workers: where clients begin
             127.0.0.1:9093   worker 1, 127.0.0.1:9094 worker 2, … : what Metadata tells

Every worker is a whole broker with its own node id and port, so clients go to the leader of each
partition by themselves. The shared port is bound by each of them (SO_REUSEPORT), and the system
gives every new connection to one of those.

A worker is told its settings in a line on its standard input, and says on its standard output that
it is ready. That input stays open: when it closes, the supervisor is gone, and the worker stops.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, Final

from rookery.broker.serve import FAILED, OK, Served, Stop, check_folder, serve
from rookery.broker.settings import BrokerSettings
from rookery.clock import loop_seconds
from rookery.errors import ConfigError, Error
from rookery.model.address import Address, parse_address
from rookery.net.loop import run
from rookery.service import logs

log = logging.getLogger("rookery.broker.workers")  # also where it runs as __main__

BAD_SETTING: Final = 2
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 10.0
# Who lived for so long before it died is restarted at once again.
_HEALTHY_SECONDS: Final = 30.0
# Beyond the drain: what a worker itself allows for leaving, and some more.
_GRACE_SECONDS: Final = 1.5


def worker_settings(settings: BrokerSettings, index: int, bootstrap: Address) -> BrokerSettings:
    """Return what one worker is given: its own ports and node id, and the port that all share.

    Raises:
        ConfigError: the ports do not suffice, or the settings contradict each other.
    """
    advertise = ""
    if settings.advertise:
        public = parse_address(settings.advertise, "advertise")
        advertise = _following(public, index + 1, "advertise").text
    listen = parse_address(settings.listen, "listen", lowest_port=0)
    if not listen.port and settings.advertise:
        raise ConfigError("advertise: workers need fixed ports for it; give `listen` a port")
    http = settings.http_listen
    if http:
        http = _following(
            parse_address(http, "http_listen", lowest_port=0), index, "http_listen"
        ).text
    return replace(
        settings,
        listen=_following(listen, index + 1, "listen").text,
        bootstrap=bootstrap.text,
        advertise=advertise,
        http_listen=http,
        node_id=settings.node_id + index if settings.node_id >= 0 else -1,
        workers=1,
    )


def _following(address: Address, steps: int, setting: str) -> Address:
    if not address.port:
        return address
    if address.port + steps > 65535:
        raise ConfigError(f"{setting}: there is no port {steps} after {address.port}")
    return Address(address.host, address.port + steps)


class _Worker:
    """One worker, in all its lives."""

    def __init__(self, number: int, settings: BrokerSettings) -> None:
        self.number = number
        self.settings = settings
        self.served: Served | None = None
        self.process: Process | None = None
        self.pause = _FIRST_PAUSE

    def life_settings(self) -> BrokerSettings:
        """Return the settings for its next life: the same port and node id as in the last."""
        if self.served is None:
            return self.settings
        port = parse_address(self.served.address).port
        listen = parse_address(self.settings.listen, lowest_port=0)
        if not listen.port:
            listen = Address(listen.host, port)
        return replace(self.settings, listen=listen.text, node_id=self.served.node_id)


class Workers:
    """The supervisor."""

    def __init__(
        self, settings: BrokerSettings, when_ready: Callable[[list[Served]], None]
    ) -> None:
        """Reserve the shared port.

        Raises:
            ConfigError: a setting cannot be used, or a port is taken.
        """
        if settings.bootstrap:
            raise ConfigError("bootstrap: with workers the shared address is that of `listen`")
        if not settings.store:
            check_folder(settings.data)
        self._settings = settings
        self._when_ready = when_ready
        listen = parse_address(settings.listen, "listen", lowest_port=0)
        self._reserved = _reserve(listen)
        self.bootstrap = Address(listen.host, int(self._reserved.getsockname()[1]))
        self._workers = [
            _Worker(index + 1, worker_settings(settings, index, self.bootstrap))
            for index in range(settings.workers)
        ]
        self._code = OK
        self._is_announced = False

    async def run(self, stop: Stop) -> int:
        """Keep the workers alive until they shall stop; return the exit code."""
        lives = [asyncio.create_task(self._keep(worker, stop)) for worker in self._workers]
        await stop.wanted.wait()
        for worker in self._workers:
            _signal(worker.process)
        seconds = self._settings.drain_timeout_ms / 1000 + _GRACE_SECONDS
        _, late = await asyncio.wait(lives, timeout=seconds)
        if late:
            log.error("%d workers did not stop within %.1f s; killing them", len(late), seconds)
            self._code = self._code or FAILED
            for worker in self._workers:
                _signal(worker.process, kill=True)
        await asyncio.gather(*lives)
        self._reserved.close()
        return self._code

    async def _keep(self, worker: _Worker, stop: Stop) -> None:
        """Run a worker again and again."""
        while not stop.wanted.is_set():
            began = loop_seconds()
            code = await self._live(worker, stop)
            if stop.wanted.is_set():
                self._code = self._code or (FAILED if code else OK)
                return
            if worker.served is None:
                # It never was ready: what is wrong will not mend itself.
                self._code = code if code in {FAILED, BAD_SETTING} else FAILED
                stop.wanted.set()
                return
            if loop_seconds() - began > _HEALTHY_SECONDS:
                worker.pause = _FIRST_PAUSE
            log.error(
                "worker %d died and is restarted in %.1f s",
                worker.number,
                worker.pause,
                extra={"error": _death(code)},
            )
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wanted.wait(), worker.pause)
            worker.pause = min(worker.pause * 2, _LONGEST_PAUSE)

    async def _live(self, worker: _Worker, stop: Stop) -> int:
        """Run a worker once; return its exit code."""
        process = worker.process = await asyncio.create_subprocess_exec(
            *_command(),
            stdin=PIPE,
            stdout=PIPE,
            # Of its own: an interrupt from the keyboard is for the supervisor, which passes it on.
            start_new_session=True,
        )
        if process.stdin is None or process.stdout is None:  # pragma: no cover (both are pipes)
            raise RuntimeError("a worker without pipes")
        if stop.wanted.is_set():
            _signal(process)
        with suppress(ConnectionError):
            process.stdin.write(_orders(worker) + b"\n")
            await process.stdin.drain()
        line = await process.stdout.readline()
        if line:
            self._ready(worker, Served(**json.loads(line)))
        code = await process.wait()
        process.stdin.close()
        return code

    def _ready(self, worker: _Worker, served: Served) -> None:
        worker.served = served
        all_served = [one.served for one in self._workers if one.served is not None]
        if len(all_served) == len(self._workers) and not self._is_announced:
            self._is_announced = True
            self._when_ready(all_served)


def _orders(worker: _Worker) -> bytes:
    return json.dumps({"number": worker.number, **asdict(worker.life_settings())}).encode()


def _command() -> Sequence[str]:
    return (sys.executable, "-m", "rookery.broker.workers")


def _death(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _signal(process: Process | None, *, kill: bool = False) -> None:
    if process is None or process.returncode is not None:
        return
    with suppress(ProcessLookupError):
        process.kill() if kill else process.terminate()


def _reserve(address: Address) -> socket.socket:
    """Bind the shared port without listening, so that it stays ours while workers come and go.

    Raises:
        ConfigError: the port is taken.
    """
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        family, _, _, _, where = found[0]
        if address.port:
            # Alone first: sharing would let another cluster's workers have it, too.
            with _bound(family, where, is_shared=False):
                pass
        return _bound(family, where, is_shared=True)
    except OSError as error:
        raise ConfigError(
            f"listen: cannot listen on {address.text}: {error.strerror or error}; "
            "set another host or port, or stop what uses this one"
        ) from error


def _bound(family: int, where: Any, *, is_shared: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(where)
    except OSError:
        sock.close()
        raise
    return sock


# What follows runs in a worker.


def main() -> int:
    """Be a worker: take the settings from the standard input, serve until it closes."""
    line = sys.stdin.buffer.readline()
    if not line:
        return FAILED
    orders = json.loads(line)
    number = orders.pop("number")
    settings = BrokerSettings.from_json(orders)
    logs.set_up(settings.log_level, worker=number)
    try:
        return run(_work(settings))
    except Error as error:
        # To the user as the supervisor would say it: its own words are not about one worker.
        print(f"rookery broker: worker {number}: {error}", file=sys.stderr)  # noqa: T201
        return BAD_SETTING if isinstance(error, ConfigError) else FAILED


async def _work(settings: BrokerSettings) -> int:
    stop = Stop()
    stop.on_signals()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), _listen_to_supervisor, stop)
    return await serve(settings, stop, _tell_supervisor)


def _listen_to_supervisor(stop: Stop) -> None:
    stdin = sys.stdin.fileno()
    if not os.read(stdin, 4096):
        asyncio.get_running_loop().remove_reader(stdin)
        if not stop.wanted.is_set():
            log.warning("stopping: the supervisor is gone")
            stop.wanted.set()


def _tell_supervisor(served: Served) -> None:
    with suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(served.as_json()) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
