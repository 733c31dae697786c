"""`rookery broker`: runs a broker, or one process per core."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.cli.command import Command
from rookery.cli.options.fields import positional
from rookery.cli.options.server import ServerArguments, run_configured, settings_flags

if TYPE_CHECKING:
    from rookery.broker.process.securefolder import SecureFolder
    from rookery.broker.serve import BrokerInfo
    from rookery.broker.settings import BrokerSettings

SECTION = "broker"
_DURABILITY = {
    "none": "as Kafka left it; nothing is written",
    "disk": "every record is synced to disk before it is acknowledged",
    "os": "every record is handed to the operating system before it is acknowledged",
    "store": "every record is in the store before it is acknowledged",
}


def _settings_class() -> type[BrokerSettings]:
    from rookery.broker.settings import BrokerSettings

    return BrokerSettings


@dataclass(frozen=True, kw_only=True)
class ServeBroker(ServerArguments):
    """The settings of the broker."""

    properties: str | None = positional(
        "SERVER_PROPERTIES",
        "a Kafka configuration file: serve the directories in its log.dirs on its listeners",
        nargs="?",
    )
    flags: Mapping[str, object] = settings_flags(_settings_class)


def run(args: ServeBroker) -> int:
    """Show the settings, or serve until a signal arrives."""
    from rookery.broker.process.kafkafile import KafkaFile, read_kafka_file

    kafka = read_kafka_file(Path(args.properties)) if args.properties else KafkaFile()
    for warning in kafka.warnings:
        print(f"rookery broker: {warning}", file=sys.stderr)
    return run_configured(
        args,
        _settings_class(),
        SECTION,
        lambda configured: _serve(configured.settings, as_json=args.json),
        kafka.given,
    )


async def _serve(settings: BrokerSettings, *, as_json: bool) -> int:
    from rookery.broker.serve import serve
    from rookery.service.process import StopRequest

    stop = StopRequest()
    folder: SecureFolder | None = None
    if settings.secure:
        settings, folder = _secure(settings)

    def greet(brokers: Sequence[BrokerInfo], bootstrap: str) -> None:
        if folder is not None:
            folder.write_client_files(bootstrap)
        _tell(brokers, bootstrap, as_json=as_json, folder=folder)

    if settings.workers == 1:
        return await serve(settings, stop, lambda info: greet([info], info.address))
    from rookery.broker.process.workers import BrokerWorkers

    def ready(brokers: Sequence[BrokerInfo]) -> None:
        greet(brokers, workers.bootstrap.text)

    workers = BrokerWorkers(settings, ready)
    stop.on_signals()
    return await workers.run(stop)


def _secure(settings: BrokerSettings) -> tuple[BrokerSettings, SecureFolder]:
    from rookery.broker.process.securefolder import SecureFolder, secure_settings
    from rookery.clock import SystemClock, SystemRandom

    secured = secure_settings(settings, SystemClock(), SystemRandom())
    return secured, SecureFolder(settings.data)


def _tell(
    brokers: Sequence[BrokerInfo],
    bootstrap: str = "",
    *,
    as_json: bool,
    folder: SecureFolder | None = None,
) -> None:
    """Print that clients can connect, and where."""
    bootstrap = bootstrap or brokers[0].address
    if as_json:
        infos = [info.as_json() for info in brokers]
        print(json.dumps({"bootstrap": bootstrap, "brokers": infos}), flush=True)
        return
    attempts = _attempts(bootstrap, is_read_only=brokers[0].durability == "none")
    if folder is not None:
        attempts = _secure_attempts(bootstrap, folder)
    print("\n".join(_lines(brokers, bootstrap, attempts)), flush=True)


def _lines(brokers: Sequence[BrokerInfo], bootstrap: str, attempts: list[str]) -> list[str]:
    first = brokers[0]
    http = [f"http://{info.http}" for info in brokers if info.http]
    nodes = ", ".join(f"{info.node_id} on {info.address}" for info in brokers)
    return [
        f"Rookery is ready: brokers {nodes}" if len(brokers) > 1 else "Rookery is ready.",
        f"  clients     {bootstrap}",
        f"  data        {first.data}: {_DURABILITY[first.durability]}",
        f"  metrics     {' '.join(f'{url}/metrics' for url in http) or 'off'}",
        f"  health      {' '.join(f'{url}/health/ready' for url in http) or 'off'}",
        f"  cluster id  {first.cluster_id}",
        "Try it:",
        *attempts,
        "Stop it with Ctrl-C.",
    ]


def _attempts(bootstrap: str, *, is_read_only: bool) -> list[str]:
    if is_read_only:
        return [f"  kcat -b {bootstrap} -L", f"  kcat -b {bootstrap} -t TOPIC -C -e"]
    return [
        f"  echo hello | kcat -b {bootstrap} -t greetings -P",
        f"  kcat -b {bootstrap} -t greetings -C",
    ]


def _secure_attempts(bootstrap: str, folder: SecureFolder) -> list[str]:
    """Return two commands that work with the files of a secure broker."""
    quoted = {
        name: shlex.quote(str(path))
        for name, path in (
            ("kcat", folder.path / "librdkafka.conf"),
            ("ca", folder.authority),
            ("password", folder.password_file),
        )
    }
    login = f"--ca-file {quoted['ca']} --user admin --password-file {quoted['password']}"
    return [
        f"  kcat -F {quoted['kcat']} -L",
        f"  rookery topics list --bootstrap {bootstrap} {login}",
        f"Settings for Java clients: {folder.path / 'client.properties'}",
    ]


COMMAND = Command(
    arguments=ServeBroker,
    run=run,
    summary="Run a Kafka-compatible broker whose log is in a local folder or an object store.",
    example="rookery broker --data ./rookery-data --listen 127.0.0.1:9092 --workers 4\n"
    "  rookery broker --store s3://bucket/log --cluster etcd://10.0.0.5:2379\n"
    "  rookery broker --log-dir /var/lib/kafka/data --read-only\n"
    "  rookery broker --secure --listen 10.0.0.5:9093\n"
    "  rookery broker /etc/kafka/server.properties",
)
