"""From a decoder's name to the decoder: the name is that of a module in `decode/decoders`."""

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
    """What a module in `decode/decoders` offers."""

    def open(self, settings: DecoderSettings) -> Decoder:
        """Make a decoder, or say which setting has to change."""


def open_decoder(name: str, settings: DecoderSettings | None = None) -> Decoder:
    """Open a decoder by its name, such as `json`.

    Raises:
        ConfigError: there is no such decoder, or its settings cannot be used.
        Unavailable: a schema registry is needed and out of reach.
    """
    # Only letters: the name becomes part of a module's name.
    if re.fullmatch(r"[a-z][a-z0-9]*", name) is None or find_spec(f"{_DECODERS}.{name}") is None:
        raise ConfigError(f"decoder {name!r}: not known; choose one of {', '.join(names())}")
    plug = cast("Plug", import_module(f"{_DECODERS}.{name}"))
    return plug.open(settings or DecoderSettings())


def names() -> list[str]:
    """List the decoders there are."""
    return sorted(module.name for module in iter_modules(decoders.__path__))
