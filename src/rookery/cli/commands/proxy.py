"""`rookery proxy`: runs a proxy in front of a Kafka cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.cli.command import Command
from rookery.cli.options.fields import positional
from rookery.cli.options.server import (
    ConfiguredSettings,
    ServerArguments,
    run_configured,
    settings_flags,
)

if TYPE_CHECKING:
    from rookery.config.sources import GivenValue
    from rookery.proxy.serve import ProxyInfo
    from rookery.proxy.settings import ProxySettings

SECTION = "proxy"


def _settings_class() -> type[ProxySettings]:
    from rookery.proxy.settings import ProxySettings

    return ProxySettings


@dataclass(frozen=True, kw_only=True)
class ServeProxy(ServerArguments):
    """The settings of the proxy."""

    file: str | None = positional(
        "FILE",
        "a TOML file with a [proxy] table, as with --config, or the YAML file of a partition "
        "remapper",
        nargs="?",
    )
    flags: Mapping[str, object] = settings_flags(_settings_class)


def run(args: ServeProxy) -> int:
    """Show the settings, or serve until a signal arrives."""
    more: list[GivenValue] = []
    if args.file is not None and args.file.endswith((".yaml", ".yml")):
        from rookery.proxy.virtual.remapperfile import read_remapper_file

        more = read_remapper_file(Path(args.file))
    elif args.file is not None:
        args = replace(args, config=(*args.config, args.file))
    return run_configured(
        args,
        _settings_class(),
        SECTION,
        lambda configured: _serve(configured, as_json=args.json),
        more,
    )


async def _serve(configured: ConfiguredSettings[ProxySettings], *, as_json: bool) -> int:
    from rookery.errors import ConfigError
    from rookery.proxy.serve import serve
    from rookery.service.process import StopRequest

    stop, settings = StopRequest(), configured.settings
    # Without a file nothing can change, so that a hang-up stops the proxy as any server.
    source = configured if configured.has_files else None
    try:
        if settings.workers == 1:
            return await serve(settings, stop, lambda info: _tell([info], as_json=as_json), source)
        from rookery.proxy.workers import ProxyWorkers

        workers = ProxyWorkers(settings, lambda infos: _tell(infos, as_json=as_json))
        if source is not None:
            workers.reload_from(source, stop)
        stop.on_signals()
        return await workers.run(stop)
    except ConfigError as error:
        raise configured.locate(error) from error


def _tell(workers: Sequence[ProxyInfo], *, as_json: bool) -> None:
    """Print that clients can connect, and where."""
    info = workers[0]
    http = [each.http for each in workers if each.http]
    if as_json:
        print(json.dumps({**info.as_json(), "http": http}), flush=True)
        return
    lines = ["The proxy is ready."]
    for cluster, listeners in info.listeners.items():
        for name, each in listeners.items():
            shown = f"{cluster}.{name}" if len(listeners) > 1 else cluster
            nodes = ", ".join(f"{node} at {text}" for node, text in each["nodes"].items())
            where = f"{each['address']} (brokers: {nodes or 'the upstream is away'})"
            lines.append(f"  {shown:<11} {where}")
    lines += [
        f"  metrics     {' '.join(f'http://{each}/metrics' for each in http) or 'off'}",
        f"  health      {' '.join(f'http://{each}/health/ready' for each in http) or 'off'}",
        "Try it:",
        f"  kcat -b {next(iter(info.clusters.values()))} -L",
        "Stop it with Ctrl-C.",
    ]
    print("\n".join(lines), flush=True)


COMMAND = Command(
    arguments=ServeProxy,
    run=run,
    summary="Run a proxy in front of a Kafka cluster.",
    example="rookery proxy --upstream kafka:9092 --listen 127.0.0.1:9192\n"
    "  rookery proxy proxy.toml",
)
