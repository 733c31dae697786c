"""Parses the URL of a log in etcd: the members' addresses and the connection options."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from rookery.errors import ConfigError
from rookery.model.address import parse_address

DEFAULT_NAME: Final = "rookery"
DEFAULT_PORT: Final = 2379
DEFAULT_TIMEOUT_SECONDS: Final = 10.0

_OPTIONS: Final = frozenset({"user", "password_file", "tls", "ca", "cert", "key", "timeout"})
_ENDPOINT: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>\d{1,5}))?")
# Layout uses these path components for its keys, so a log with such a name would be inside another
# log.
_NAME: Final = re.compile(r"(?!(.*/)?(entry|writer)(/|$))[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")


@dataclass(frozen=True, slots=True)
class EtcdAddress:
    """One log in one etcd cluster."""

    endpoints: tuple[str, ...]
    """`host:port` of the members, each of which can serve every call."""
    name: str = DEFAULT_NAME
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    """How long a call keeps trying the members in turn."""
    user: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False
    ca: bytes | None = None
    """The CA that signs the members' certificates; None: the CAs that the machine trusts."""
    cert: bytes | None = None
    key: bytes | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"etcd at {', '.join(self.endpoints)}"

    @property
    def plaintext_members(self) -> tuple[str, ...]:
        """The members on other hosts to which connections are not encrypted."""
        if self.tls:
            return ()
        return tuple(
            endpoint for endpoint in self.endpoints if not parse_address(endpoint).is_loopback
        )


def parse(url: str) -> EtcdAddress:
    """Parse `etcd://host:port,host:port/name?user=…&password_file=…&ca=…&cert=…&key=…&timeout=…`.

    `ca` is a file with the CA certificates to trust; `tls=on` alone trusts the machine's CAs.
    Without either, the connection is not encrypted.

    Raises:
        ConfigError: the URL is invalid, or a file that it names cannot be read.
    """
    parts = urlsplit(url)
    options = _options(url, parts.query)
    name = unquote(parts.path).strip("/") or DEFAULT_NAME
    if parts.fragment or _NAME.fullmatch(name) is None:
        raise _make_error(url, f"{name!r} cannot be a log's name; use letters, digits, . _ - and /")
    user = options.get("user", "")
    if bool(user) != ("password_file" in options):
        raise _make_error(url, "user and password_file belong together")
    if ("cert" in options) != ("key" in options):
        raise _make_error(url, "cert and key belong together")
    tls = _tls(url, options)
    return EtcdAddress(
        endpoints=tuple(_endpoint(url, text) for text in parts.netloc.split(",")),
        name=name,
        timeout_seconds=_timeout(url, options),
        user=user,
        password=(_file(url, options, "password_file") or b"").decode().rstrip("\r\n"),
        tls=tls,
        ca=_file(url, options, "ca"),
        cert=_file(url, options, "cert"),
        key=_file(url, options, "key"),
    )


def _options(url: str, query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise _make_error(url, f"{query!r} is not a list of options") from None
    options = dict(pairs)
    if unknown := sorted(options.keys() - _OPTIONS):
        raise _make_error(url, f"no option {unknown[0]!r}; there are {', '.join(sorted(_OPTIONS))}")
    if len(options) < len(pairs):
        raise _make_error(url, "an option occurs twice")
    return options


def _tls(url: str, options: dict[str, str]) -> bool:
    wanted = options.get("tls", "on" if "ca" in options else "off")
    if wanted not in {"on", "off"}:
        raise _make_error(url, f"tls={wanted}: choose on or off")
    if wanted == "off" and options.keys() & {"ca", "cert", "key"}:
        raise _make_error(url, "ca, cert and key are for TLS: add ca=… or tls=on")
    return wanted == "on"


def _timeout(url: str, options: dict[str, str]) -> float:
    text = options.get("timeout", str(DEFAULT_TIMEOUT_SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise _make_error(url, f"timeout={text}: give seconds, between 0.1 and 3600")
    return seconds


def _endpoint(url: str, text: str) -> str:
    match = _ENDPOINT.fullmatch(text)
    if match is None or not 0 < int(match["port"] or DEFAULT_PORT) < 65536:
        shown = text.rpartition("@")[2]  # before it, there may be a password
        raise _make_error(url, f"{shown!r} is not host:port; write etcd://host:2379,host:2379/name")
    return f"{match['host']}:{match['port'] or DEFAULT_PORT}"


def _file(url: str, options: dict[str, str], option: str) -> bytes | None:
    if option not in options:
        return None
    try:
        return Path(options[option]).read_bytes()
    except OSError as error:
        raise _make_error(url, f"{option}: {error.strerror}: {options[option]}") from error


def _make_error(url: str, why: str) -> ConfigError:
    return ConfigError(f"cluster log {url!r}: {why}")
