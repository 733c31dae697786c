"""Logins and access rules in Kafka's `server.properties`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from rookery.broker.process.kafkaproperties import KafkaProperties
from rookery.security.sasl import mechanisms

_MECHANISMS: Final = "sasl.enabled.mechanisms"
_HANDLER: Final = "sasl.server.callback.handler.class"
_BEARER_HANDLER: Final = "OAuthBearerValidatorCallbackHandler"
_STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_PRINCIPALS: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
_PLAIN_USER: Final = re.compile(r"\buser_([^\s=]+)\s*=")
# Kafka's key and the name of our setting.
_BEARER: Final = {
    "sasl.oauthbearer.jwks.endpoint.url": "oauth_jwks",
    "sasl.oauthbearer.expected.issuer": "oauth_issuer",
    "sasl.oauthbearer.expected.audience": "oauth_audience",
    "sasl.oauthbearer.sub.claim.name": "oauth_user_claim",
}


def login_values(file: KafkaProperties, listener: str) -> dict[str, str]:
    """Return the settings of a listener with SASL, by the names of `ListenerSecurity`.

    Raises:
        ConfigError: a mechanism cannot be served.
    """
    names = [
        name.strip()
        for name in file.of_listener(listener, _MECHANISMS, "GSSAPI").split(",")
        if name.strip()
    ]
    unknown = [name for name in names if name not in mechanisms()]
    if unknown or not names:
        raise file.refusal(
            _MECHANISMS,
            f"the listener {listener} cannot offer {', '.join(unknown) or 'nothing'}; set "
            f"{file.own_key(listener, _MECHANISMS)} to some of {', '.join(mechanisms())}",
        )
    values = {"mechanisms": ",".join(names)}
    for name in names:
        _check_handler(file, listener, name)
        _read_jaas(file, listener, name)
    max_session_ms = file.of_listener(listener, "connections.max.reauth.ms")
    if max_session_ms:
        values["max_session_ms"] = max_session_ms
    if "OAUTHBEARER" in names:
        values |= dict(_bearer_values(file, listener))
    return values


def _check_handler(file: KafkaProperties, listener: str, mechanism: str) -> None:
    """Refuse plugins; Kafka's own check of tokens is also that of Rookery."""
    key = f"{mechanism.lower()}.{_HANDLER}"
    handler = file.of_listener(listener, key)
    is_own = mechanism == "OAUTHBEARER" and handler.endswith(f".{_BEARER_HANDLER}")
    if handler and not is_own:
        raise file.refusal(
            file.own_key(listener, key),
            f"plugins are not supported; remove it, and {mechanism} checks the users that "
            "`rookery users add` creates",
        )


def _read_jaas(file: KafkaProperties, listener: str, mechanism: str) -> None:
    """Report users that exist in the file alone."""
    text = file.of_listener(listener, f"{mechanism.lower()}.sasl.jaas.config")
    text = text or file.of_listener(listener, "sasl.jaas.config")
    users = sorted(set(_PLAIN_USER.findall(text)))
    if mechanism == "PLAIN":
        named = f"; those of the file are not: {', '.join(users)}" if users else ""
        file.warn(
            f"PLAIN on the listener {listener} checks the passwords of SCRAM users{named}. "
            "Add users with `rookery users add`"
        )


def _bearer_values(file: KafkaProperties, listener: str) -> Iterator[tuple[str, str]]:
    for key, name in _BEARER.items():
        value = file.of_listener(listener, key)
        if value:
            yield name, re.sub(r"^file:(//)?", "", value)


def access_values(file: KafkaProperties) -> Iterator[tuple[str, str, str]]:
    """Yield the settings of the authorizer: name, value, and Kafka's key.

    Raises:
        ConfigError: there is a plugin.
    """
    builder = file.get("principal.builder.class")
    if builder not in {"", _PRINCIPALS}:
        raise file.refusal(
            "principal.builder.class",
            "plugins are not supported; remove it, and map the names of certificates with "
            "ssl.principal.mapping.rules",
        )
    key = "authorizer.class.name"
    authorizer = file.get(key)
    if not authorizer:
        return
    if authorizer != _STANDARD_AUTHORIZER:
        raise file.refusal(
            key,
            f"{authorizer} is a plugin, which cannot be loaded; set {_STANDARD_AUTHORIZER} to "
            "enforce the access rules of the directory, or remove it to have none",
        )
    yield "authorizer", "acls", key
    for key, name in (
        ("super.users", "super_users"),
        ("allow.everyone.if.no.acl.found", "allow_everyone_if_no_acl"),
    ):
        if value := file.get(key):
            yield name, value, key
