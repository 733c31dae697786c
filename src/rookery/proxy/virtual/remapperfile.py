"""Reads the YAML configuration of a partition remapper as settings of a proxy.

Its keys are `listen`, `kafka`, `mapping`, `metrics` and `logging`. Unknown keys are refused by
name, and so are values that would have no effect here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from rookery.config.schema import settings_of
from rookery.config.sources import GivenValue
from rookery.errors import ConfigError
from rookery.proxy.settings import ProxySettings

_MAX_BYTES: Final = 1 << 20
_PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_LEVELS: Final = {"trace": "debug", "warn": "warning"}
SettingPath = tuple[str, ...]


class KeyRule(NamedTuple):
    """The setting that a key of the file sets."""

    setting: SettingPath
    convert: Callable[[Any], Any] = lambda value: value


class RefusedKey(NamedTuple):
    """A key that is not supported: what to do instead, and the value that it may have."""

    advice: str
    harmless: object


def _join(value: Any) -> str:
    return value if isinstance(value, str) else ",".join(value)


def _protocol(value: Any) -> str:
    name = str(value).lower()
    if name not in _PROTOCOLS:
        raise ConfigError(f"{value!r} is not one of {', '.join(_PROTOCOLS)}", name="protocol")
    return name


_LISTEN: Final = "listen.security"
_USERS: Final = "write the users to a TOML file, and name it with --users-file"
_TOKENS: Final = "set oauth_jwks, oauth_issuer and oauth_audience in a TOML file"
_KEYS: Final[Mapping[str, KeyRule | RefusedKey | None]] = {
    # Keys with None are read together with others.
    "listen.address": None,
    "listen.advertised_address": None,
    "listen.max_connections": KeyRule(("max_connections",)),
    f"{_LISTEN}.protocol": None,
    f"{_LISTEN}.tls.cert_path": KeyRule(("security", "certificate_file")),
    f"{_LISTEN}.tls.key_path": KeyRule(("security", "key_file")),
    f"{_LISTEN}.tls.ca_cert_path": KeyRule(("security", "client_ca_file")),
    f"{_LISTEN}.tls.require_client_cert": KeyRule(
        ("security", "client_auth"), lambda value: "required" if value else "none"
    ),
    f"{_LISTEN}.tls.principal.mapping_rules": KeyRule(("security", "principal_mapping_rules")),
    f"{_LISTEN}.sasl.enabled_mechanisms": KeyRule(("security", "mechanisms"), _join),
    f"{_LISTEN}.sasl.credentials.users": RefusedKey(_USERS, []),
    f"{_LISTEN}.sasl.credentials.file": RefusedKey(_USERS, ""),
    f"{_LISTEN}.sasl.oauthbearer.validation": RefusedKey(_TOKENS, "jwt"),
    **{
        f"{_LISTEN}.sasl.oauthbearer.jwt.{name}": RefusedKey(_TOKENS, None)
        for name in (
            *("jwks_url", "jwks_inline", "issuer", "audience", "required_scopes"),
            *("clock_skew_seconds", "jwks_refresh_interval_secs"),
        )
    },
    "kafka.bootstrap_servers": KeyRule(("upstream",), _join),
    "kafka.connection_timeout_ms": KeyRule(("connect_timeout_ms",)),
    "kafka.request_timeout_ms": KeyRule(("request_timeout_ms",)),
    "kafka.metadata_refresh_interval_secs": KeyRule(
        ("refresh_interval_ms",), lambda value: value * 1000
    ),
    "kafka.security_protocol": KeyRule(
        ("upstream_security", "tls"), lambda value: "ssl" in _protocol(value).split("_")
    ),
    "kafka.tls.ca_cert_path": KeyRule(("upstream_security", "ca_file")),
    "kafka.tls.cert_path": KeyRule(("upstream_security", "certificate_file")),
    "kafka.tls.key_path": KeyRule(("upstream_security", "key_file")),
    "kafka.tls.insecure_skip_verify": RefusedKey(
        "name the authority in ca_cert_path", harmless=False
    ),
    "kafka.sasl.mechanism": KeyRule(("upstream_security", "mechanism")),
    "kafka.sasl.username": KeyRule(("upstream_security", "username")),
    "kafka.sasl.password": KeyRule(("upstream_security", "password")),
    "mapping": KeyRule(("virtual",)),
    "metrics.enabled": None,
    "metrics.address": None,
    "logging.level": KeyRule(("log_level",), lambda value: _LEVELS.get(value, value)),
    "logging.json": RefusedKey("log lines are text", harmless=False),
}


def read_remapper_file(path: Path) -> list[GivenValue]:
    """Return the settings that a file gives.

    Raises:
        ConfigError: it cannot be read, or a key cannot be used.
    """
    leaves = dict(_leaves(_load(path), ""))
    given: dict[SettingPath, Any] = {("nodes",): "proxy"}
    for key, value in leaves.items():
        if key not in _KEYS:
            raise ConfigError(f"there is no such key ({path})", name=key)
        rule = _KEYS[key]
        if isinstance(rule, RefusedKey):
            if value != rule.harmless:
                raise ConfigError(f"is not supported: {rule.advice} ({path})", name=key)
        elif rule is not None:
            given[rule.setting] = _convert(rule, key, value, path)
    _read_listen(leaves, given)
    if "mapping" not in leaves:
        raise ConfigError(f"is missing ({path})", name="mapping")
    if not leaves.get("metrics.enabled", True):
        given["http_listen",] = ""
    elif "metrics.address" in leaves:
        given["http_listen",] = leaves["metrics.address"]
    by_path = {setting.path: setting for setting in settings_of(ProxySettings)}
    return [
        GivenValue(by_path[setting], value, is_text=False, source=str(path))
        for setting, value in given.items()
    ]


def _read_listen(leaves: Mapping[str, Any], given: dict[SettingPath, Any]) -> None:
    protocol = _protocol(leaves.get(f"{_LISTEN}.protocol", "plaintext"))
    given["listen",] = f"{protocol}://{leaves.get('listen.address', '0.0.0.0:9092')}"
    advertised = leaves.get("listen.advertised_address")
    if advertised is not None:
        given["instances",] = f"1={advertised}"


def _convert(rule: KeyRule, key: str, value: Any, path: Path) -> Any:
    try:
        return rule.convert(value)
    except (TypeError, AttributeError):
        raise ConfigError(f"{value!r} is not what it takes ({path})", name=key) from None


def _leaves(table: object, above: str) -> Iterator[tuple[str, Any]]:
    """Yield the keys with values; `mapping` is one, since it has tables of topics."""
    if not isinstance(table, Mapping):
        raise ConfigError("must be a table", name=above or "the file")
    for key, value in table.items():
        name = f"{above}.{key}" if above else str(key)
        is_inner = any(known.startswith(f"{name}.") for known in _KEYS)
        if is_inner and value is not None:
            yield from _leaves(value, name)
        elif value is not None:
            yield name, value


def _load(path: Path) -> object:
    try:
        import yaml  # type: ignore[import-untyped] # noqa: PLC0415 (an extra, which has no types)
    except ImportError as error:
        raise ConfigError(f'{path}: YAML needs `pip install "rookery[yaml]"`') from error
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if len(text) > _MAX_BYTES:
        raise ConfigError(f"{path}: above {_MAX_BYTES} bytes; is this the right file?")

    class StrictLoader(yaml.SafeLoader):  # type: ignore[misc] # no types
        """Accepts plain values only, and each key once."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 (the library's)
            keys = [each.value for each, _ in node.value]
            for key in keys:
                if keys.count(key) > 1:
                    raise ConfigError(f"{path}: {key} is given twice")
            return dict(super().construct_mapping(node, deep))

    try:
        # Aliases can stand for far more than the bytes of the file.
        if any(isinstance(each, yaml.AliasEvent) for each in yaml.parse(text)):
            raise ConfigError(f"{path}: aliases are not supported")
        return StrictLoader(text).get_single_data()
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {error}") from None
