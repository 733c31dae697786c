"""Opens decoders by name: the name is that of a module in `decode/decoders`."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Final, Protocol, cast

from rookery.decode import decoders
from rookery.decode.port import Decoder, DecoderSettings
from rookery.errors import ConfigError

_DECODERS: Final = "rookery.decode.decoders"


class Plug(Protocol):
    """The interface of a module in `decode/decoders`."""

    def open(self, settings: DecoderSettings) -> Decoder:
        """Create a decoder, or report which setting must change."""


def open_decoder(name: str, settings: DecoderSettings | None = None) -> Decoder:
    """Open a decoder by its name, such as `json`.

    Raises:
        ConfigError: there is no such decoder, or its settings are invalid.
        Unavailable: a required schema registry cannot be reached.
    """
    # Letters and digits only: the name becomes part of a module's name.
    if re.fullmatch(r"[a-z][a-z0-9]*", name) is None or find_spec(f"{_DECODERS}.{name}") is None:
        raise ConfigError(f"decoder {name!r}: not known; choose one of {', '.join(names())}")
    plug = cast("Plug", import_module(f"{_DECODERS}.{name}"))
    return plug.open(settings or DecoderSettings())


def names() -> list[str]:
    """List the available decoders."""
    return sorted(module.name for module in iter_modules(decoders.__path__))
