"""Configs of topics that a command sets."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.cli.options.fields import repeated
from rookery.cli.options.values import setting


@dataclass(frozen=True, kw_only=True)
class ConfigArguments:
    """Names with values."""

    config: tuple[tuple[str, str], ...] = repeated(
        "-c",
        "--config",
        type=setting,
        metavar="NAME=VALUE",
        help="a topic config, such as retention.ms=3600000; may be repeated",
    )
