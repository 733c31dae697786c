"""`rookery broker`: run a broker here, or several as one."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.broker.settings import BrokerSettings
from rookery.cli.command import Subparsers, add_command, print_json
from rookery.config.flags import add_config_flags, add_flags

if TYPE_CHECKING:
    from rookery.broker.serve import BrokerInfo
    from rookery.config.load import Loaded

SECTION = "broker"
_DURABILITY = {
    "none": "as Kafka left it; nothing is written",
    "disk": "every record is synced to disk before it is acknowledged",
    "os": "every record is handed to the operating system before it is acknowledged",
    "store": "every record is in the store before it is acknowledged",
}


def add(subparsers: Subparsers) -> None:
    """Declare the command."""
    parser = add_command(
        subparsers,
        "broker",
        run,
        summary="Run a broker: Kafka's clients connect to it, its log is a folder or a store.",
        example="rookery broker --data ./rookery-data --listen 127.0.0.1:9092 --workers 4\n"
        "  rookery broker --store s3://bucket/log --cluster etcd://10.0.0.5:2379\n"
        "  rookery broker --log-dir /var/lib/kafka/data --read-only\n"
        "  rookery broker /etc/kafka/server.properties",
    )
    parser.add_argument(
        "properties",
        nargs="?",
        metavar="SERVER_PROPERTIES",
        help="Kafka's own file: serve the directory that its log.dirs names, at its listeners",
    )
    add_config_flags(parser)
    add_flags(parser, BrokerSettings)


def run(args: argparse.Namespace) -> int:
    """Show the settings, or serve until told to stop."""
    from rookery.broker.kafkafile import KafkaFile, read_kafka_file  # noqa: PLC0415 (when it runs)
    from rookery.config.load import SECTIONS, config_files, load  # noqa: PLC0415

    kafka = read_kafka_file(Path(args.properties)) if args.properties else KafkaFile()
    loaded = load(
        BrokerSettings,
        SECTION,
        args,
        files=config_files(args),
        sections=SECTIONS,
        more=kafka.given,
    )
    for warning in (*loaded.warnings, *kafka.warnings):
        print(f"rookery broker: {warning}", file=sys.stderr)
    if args.print_config:
        return _print_config(loaded, as_json=args.json)
    return _serve(loaded.settings, as_json=args.json)


def _print_config(loaded: Loaded[BrokerSettings], *, as_json: bool) -> int:
    from rookery.config.show import config_as_json, print_config  # noqa: PLC0415

    if as_json:
        print_json(config_as_json(loaded))
    else:
        print(print_config(loaded), end="")
    return 0


def _serve(settings: BrokerSettings, *, as_json: bool) -> int:
    # Heavy, and not wanted for `rookery --help`.
    from rookery.net.loop import run as run_loop  # noqa: PLC0415
    from rookery.service import logs  # noqa: PLC0415

    logs.set_up(settings.log_level)
    return run_loop((_serve_one if settings.workers == 1 else _serve_several)(settings, as_json))


async def _serve_one(settings: BrokerSettings, as_json: bool) -> int:  # noqa: FBT001 (of two alike)
    from rookery.broker.serve import serve  # noqa: PLC0415
    from rookery.service.process import StopRequest  # noqa: PLC0415

    return await serve(settings, StopRequest(), lambda info: _tell([info], as_json=as_json))


async def _serve_several(settings: BrokerSettings, as_json: bool) -> int:  # noqa: FBT001
    from rookery.broker.workers import BrokerWorkers  # noqa: PLC0415
    from rookery.service.process import StopRequest  # noqa: PLC0415

    def ready(brokers: Sequence[BrokerInfo]) -> None:
        _tell(brokers, workers.bootstrap.text, as_json=as_json)

    stop, workers = StopRequest(), BrokerWorkers(settings, ready)
    stop.on_signals()
    return await workers.run(stop)


def _tell(brokers: Sequence[BrokerInfo], bootstrap: str = "", *, as_json: bool) -> None:
    """Print that clients can connect, and where."""
    bootstrap = bootstrap or brokers[0].address
    if as_json:
        infos = [info.as_json() for info in brokers]
        print(json.dumps({"bootstrap": bootstrap, "brokers": infos}), flush=True)
        return
    print("\n".join(_lines(brokers, bootstrap)), flush=True)


def _lines(brokers: Sequence[BrokerInfo], bootstrap: str) -> list[str]:
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
        *_attempts(bootstrap, is_read_only=first.durability == "none"),
        "Stop it with Ctrl-C.",
    ]


def _attempts(bootstrap: str, *, is_read_only: bool) -> list[str]:
    if is_read_only:
        return [f"  kcat -b {bootstrap} -L", f"  kcat -b {bootstrap} -t TOPIC -C -e"]
    return [
        f"  echo hello | kcat -b {bootstrap} -t greetings -P",
        f"  kcat -b {bootstrap} -t greetings -C",
    ]
