"""Checks of `rookery doctor` for the settings of a broker: what they leave open, and to whom.

A finding has a remedy if other hosts, or other users of this host, have access. A listener on
loopback without authentication is reported without one: that is the default for development.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from rookery.broker.process.firstuser import security_folder
from rookery.broker.settings import BrokerSettings
from rookery.errors import ConfigError
from rookery.model.address import parse_address
from rookery.service.listen.exposure import (
    HttpExposure,
    ListenerExposure,
    judge_http,
    judge_listener,
)
from rookery.service.listen.listenersettings import ListenerConfig

_OTHERS: Final = 0o007
"""The bits of a file's mode that concern neither its owner nor its group."""
_FOLDER_MODE: Final = "700"
_FILE_MODE: Final = "600"
_LISTENER_REMEDIES: Final = {
    ListenerExposure.OPEN: "use sasl_ssl://, or ssl:// with client_auth = required",
    ListenerExposure.READABLE: "use sasl_ssl://",
}


class SecurityFinding(NamedTuple):
    """One way of access; there is a remedy if it is open to others."""

    name: str
    detail: str
    remedy: str = ""


def look_at_settings(config: Sequence[str] = (), properties: str = "") -> Iterator[SecurityFinding]:
    """Load the settings of a broker, as `rookery broker` does, and yield its ways of access.

    Args:
        config: the TOML files; the default one if empty.
        properties: Kafka's `server.properties`, if there is one.
    """
    from rookery.broker.process.kafkafile import KafkaFile, read_kafka_file
    from rookery.config.load import DEFAULT, config_files, load
    from rookery.config.sections import sections

    try:
        kafka = read_kafka_file(Path(properties)) if properties else KafkaFile()
        files = config_files(config)
        loaded = load(BrokerSettings, "broker", files=files, sections=sections(), more=kafka.given)
        if all(source == DEFAULT for source in loaded.sources.values()):
            yield SecurityFinding(
                "broker", "default settings: only this host can connect; --config examines others"
            )
            return
        yield from look_at_broker(loaded.settings)
    except ConfigError as error:
        yield SecurityFinding("broker", "the settings cannot be used", str(error))


def look_at_broker(settings: BrokerSettings) -> Iterator[SecurityFinding]:
    """Yield the ways of access to a broker with these settings.

    Raises:
        ConfigError: a setting cannot be used.
    """
    if settings.secure:
        settings = _apply_secure(settings)
    listeners = _listeners(settings)
    for name, config in listeners:
        yield _look_at_listener(name, config)
    yield _look_at_authorizer(
        settings, is_reachable=any(not config.address.is_loopback for _, config in listeners)
    )
    yield _look_at_http(settings)
    yield from _look_at_folders(settings)
    yield from _look_at_files(settings)
    if settings.cluster:
        yield _look_at_cluster_log(settings.cluster)


def _apply_secure(settings: BrokerSettings) -> BrokerSettings:
    """Return what the setting `secure` makes of the others, without creating its files."""
    address = ListenerConfig(listen=settings.listen).address
    authorizer = "acls" if settings.authorizer == "none" else settings.authorizer
    return replace(settings, listen=f"sasl_ssl://{address.text}", authorizer=authorizer)


def _listeners(settings: BrokerSettings) -> list[tuple[str, ListenerConfig]]:
    listeners = list(settings.client_listeners().items())
    if settings.bootstrap:
        _, first = listeners[0]
        shared = parse_address(settings.bootstrap, "bootstrap", lowest_port=0)
        listeners.append(("bootstrap", first.at(shared)))
    return listeners


def _look_at_listener(name: str, config: ListenerConfig) -> SecurityFinding:
    exposure = judge_listener(config)
    detail = f"{config.protocol.name} at {config.address.text}: {exposure.value}"
    return SecurityFinding(f"listener {name}", detail, _LISTENER_REMEDIES.get(exposure, ""))


def _look_at_authorizer(settings: BrokerSettings, *, is_reachable: bool) -> SecurityFinding:
    name, remedy = "authorizer", ""
    if settings.authorizer == "none":
        detail = "none: every client that can connect may do everything"
        remedy = "set authorizer = log, complete the rules with `rookery acls`, then set acls"
    elif settings.authorizer == "log":
        detail = "log: denied requests are served"
        remedy = "set authorizer = acls when no denials are logged any more"
    elif settings.allow_everyone_if_no_acl:
        detail = "acls, but resources without a rule are open to every client"
        remedy = "set allow_everyone_if_no_acl = false when the rules are complete"
    else:
        detail = "acls: the rules are enforced"
    return SecurityFinding(name, detail, remedy if is_reachable else "")


def _look_at_http(settings: BrokerSettings) -> SecurityFinding:
    exposure = judge_http(settings.http_listen, settings.http_token_file)
    if exposure is HttpExposure.OFF:
        return SecurityFinding("http", exposure.value)
    listen = parse_address(settings.http_listen, "http_listen", lowest_port=0)
    detail = f"metrics and health at {listen.text}: {exposure.value}"
    is_open = exposure is HttpExposure.OPEN
    remedy = "set http_token_file, or listen on 127.0.0.1" if is_open else ""
    return SecurityFinding("http", detail, remedy)


def _look_at_folders(settings: BrokerSettings) -> Iterator[SecurityFinding]:
    """Yield the folders with records and keys."""
    if settings.log_dir:
        for folder in settings.log_dir.split(","):
            yield _look_at_path("log directory", Path(folder.strip()), _FOLDER_MODE)
    elif not settings.store:
        data = Path(settings.data)
        if data.exists():
            yield _look_at_path("data folder", data, _FOLDER_MODE)
        else:
            yield SecurityFinding("data folder", f"{data}: created for its owner alone")
    keys = security_folder(settings.data)
    if settings.secure and keys.exists():
        yield _look_at_path("secret folder", keys, _FOLDER_MODE)


def _look_at_files(settings: BrokerSettings) -> Iterator[SecurityFinding]:
    """Yield the files with a key or a token."""
    paths = [Path(settings.http_token_file)] if settings.http_token_file else []
    for config in settings.client_listeners().values():
        # Without a file of its own, the key is in that of the certificate.
        key = config.key_file or config.certificate_file
        if config.protocol.has_tls and key:
            paths.append(Path(key))
    for path in dict.fromkeys(paths):
        yield _look_at_path("secret file", path, _FILE_MODE)


def _look_at_path(title: str, path: Path, wanted: str) -> SecurityFinding:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        detail = f"{path}: {error.strerror or error}"
        return SecurityFinding(title, detail, f"create {path}, or correct the setting")
    if mode & _OTHERS:
        detail = f"{path}: every user of this host can access it (mode {mode:o})"
        return SecurityFinding(title, detail, f"chmod {wanted} {path}")
    return SecurityFinding(title, f"{path}: closed to other users (mode {mode:o})")


def _look_at_cluster_log(url: str) -> SecurityFinding:
    from rookery.cluster.open import log_traits

    members = ", ".join(log_traits(url).plaintext_members)
    if not members:
        return SecurityFinding("cluster log", "connections are encrypted, or stay on this host")
    detail = f"connections to {members} are not encrypted"
    return SecurityFinding("cluster log", detail, "use TLS: ca=FILE or tls=on in its URL")
