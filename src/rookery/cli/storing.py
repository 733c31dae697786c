"""Arguments of commands that work on the log itself, without a broker: where it lies."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rookery.broker.settings import BrokerSettings


_FLAGS: Final = {
    "data": ("FOLDER", "the folder of brokers on this host (default: rookery-data)"),
    "store": ("URL", "the object store, such as s3://bucket/prefix or file:///srv/rookery"),
    "cluster": ("URL", "the cluster log, such as etcd://host:2379/name (default: in the store)"),
    "namespace": ("NAME", "what the keys of segments begin with (default: default)"),
}


def add_storage(parser: argparse.ArgumentParser) -> None:
    """Let a command be told where the log is, with the settings of the broker."""
    group = parser.add_argument_group(
        "where the log is", "as for `rookery broker`, whose configuration holds here, too"
    )
    for name, (metavar, words) in _FLAGS.items():
        group.add_argument(
            f"--{name}", dest=_dest(name), default=argparse.SUPPRESS, metavar=metavar, help=words
        )
    group.add_argument(
        "--config",
        action="append",
        metavar="FILE",
        help="read the broker's settings from a TOML file; may be repeated",
    )


def load_settings(args: argparse.Namespace) -> BrokerSettings:
    """Return the broker's settings; a folder that is named wins over a store that is configured.

    Raises:
        ConfigError: a setting cannot be used.
    """
    from dataclasses import replace  # noqa: PLC0415 (only when it runs)

    from rookery.broker.settings import BrokerSettings  # noqa: PLC0415
    from rookery.config.load import SECTIONS, config_files, load  # noqa: PLC0415

    files = config_files(args)
    settings = load(BrokerSettings, "broker", args, files=files, sections=SECTIONS).settings
    if hasattr(args, _dest("data")) and not hasattr(args, _dest("store")):
        return replace(settings, store="", cluster="")
    return settings


def _dest(name: str) -> str:
    return f"setting {name}"  # where `config.load` looks for it
