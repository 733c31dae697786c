"""Options of every command that runs a server: its settings and their sources."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import Field, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from rookery.cli.command import CommandArguments, print_json
from rookery.cli.options.fields import custom, repeated, switch

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from rookery.config.load import LoadedSettings
    from rookery.config.sources import GivenValue
    from rookery.errors import ConfigError


class ServerSettings(Protocol):
    """The settings that all servers have."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def log_level(self) -> str:
        """The lowest level that is logged."""


T = TypeVar("T", bound=ServerSettings)


@dataclass(frozen=True, kw_only=True)
class ServerArguments(CommandArguments):
    """The sources of settings; a command adds the flags with `settings_flags`."""

    config: tuple[str, ...] = repeated(
        "--config",
        metavar="FILE",
        help="a TOML file with settings; may be repeated, later files override earlier ones "
        "(default: the file in ROOKERY_CONFIG, or ./rookery.toml if it exists)",
    )
    print_config: bool = switch(
        "--print-config", help="show all settings and their sources, then exit"
    )
    flags: Mapping[str, object]
    """A flag for each setting that is given."""


def settings_flags(find_class: Callable[[], type[DataclassInstance]]) -> Any:
    """Declare a flag for each setting of a server.

    Args:
        find_class: imports and returns the class of the settings; called for `--help`, too.
    """

    def add(parser: argparse.ArgumentParser) -> None:
        from rookery.config.flags import add_flags

        add_flags(parser, find_class())

    return custom(add, _read_flags)


def _read_flags(parsed: Mapping[str, object]) -> Mapping[str, object]:
    from rookery.config.flags import read_flags

    return read_flags(parsed)


class ConfiguredSettings(Generic[T]):
    """The settings of a server, which can be read again from the same files."""

    def __init__(
        self, args: ServerArguments, cls: type[T], section: str, more: Sequence[GivenValue] = ()
    ) -> None:
        """Load the settings.

        Args:
            args: the arguments of the command.
            cls: the class of the settings.
            section: their table in files.
            more: what another kind of file gives; it wins over TOML files.

        Raises:
            ConfigError: a setting cannot be used.
        """
        from rookery.config.load import config_files

        self._files = config_files(args.config)
        self._args = args
        self._cls = cls
        self._section = section
        self._more = more
        self.loaded = self._load()
        """The settings that were read last, with their places."""

    @property
    def settings(self) -> T:
        """The settings that were read last."""
        return self.loaded.settings

    @property
    def has_files(self) -> bool:
        """Whether any setting can change while the server runs."""
        return bool(self._files)

    def read(self) -> T:
        """Read the settings again.

        Raises:
            ConfigError: a setting cannot be used.
        """
        self.loaded = self._load()
        return self.loaded.settings

    def locate(self, error: ConfigError) -> ConfigError:
        """Return an error that names the file and the line of its setting, too."""
        return self.loaded.locate(error)

    def _load(self) -> LoadedSettings[T]:
        from rookery.config.load import load
        from rookery.config.sections import sections

        return load(
            self._cls,
            self._section,
            self._args.flags,
            files=self._files,
            sections=sections(),
            more=self._more,
        )


def run_configured(
    args: ServerArguments,
    cls: type[T],
    section: str,
    serve: Callable[[ConfiguredSettings[T]], Coroutine[Any, Any, int]],
    more: Sequence[GivenValue] = (),
) -> int:
    """Load settings; show them if that is asked for, else serve with them.

    Args:
        args: the arguments of the command.
        cls: the class of the settings.
        section: their table in files.
        serve: runs the server in an event loop; returns the exit code.
        more: what another kind of file gives; it wins over TOML files.

    Raises:
        ConfigError: a setting cannot be used.
    """
    from rookery.config.show import config_as_json, print_config
    from rookery.net.loop import run_loop
    from rookery.service import logs

    configured = ConfiguredSettings(args, cls, section, more)
    loaded = configured.loaded
    for warning in loaded.warnings:
        print(f"rookery {section}: {warning}", file=sys.stderr)
    if not args.print_config:
        logs.set_up(loaded.settings.log_level)
        return run_loop(serve(configured))
    if args.json:
        print_json(config_as_json(loaded))
    else:
        print(print_config(loaded), end="")
    return 0
