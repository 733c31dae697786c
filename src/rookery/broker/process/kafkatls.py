"""The TLS settings of a listener in Kafka's `server.properties`."""

from __future__ import annotations

import re
from typing import Final

from rookery.broker.process.kafkaproperties import KafkaProperties

_CLIENT_AUTH: Final = "ssl.client.auth"
_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([^-]*)-----END \1-----")
_LINE: Final = 64


def tls_values(file: KafkaProperties, listener: str, *, has_sasl: bool) -> dict[str, str]:
    """Return the settings of a listener with TLS, by the names of `ListenerSecurity`.

    Raises:
        ConfigError: it has no certificate, or needs a plugin.
    """
    if file.of_listener(listener, "ssl.engine.factory.class"):
        raise file.refusal(
            "ssl.engine.factory.class", "plugins are not supported; use ssl.keystore.location"
        )
    values = _identity(file, listener)
    authorities = _authorities(file, listener)
    auth = _client_auth(file, listener, has_sasl=has_sasl)
    if auth != "none":
        if not authorities:
            raise file.refusal(
                _CLIENT_AUTH, f"is {auth} for the listener {listener}; set ssl.truststore.location"
            )
        values |= {"client_auth": auth, **authorities}
    rules = file.of_listener(listener, "ssl.principal.mapping.rules")
    if rules and not has_sasl:
        values["principal_mapping_rules"] = rules
    return values


def _identity(file: KafkaProperties, listener: str) -> dict[str, str]:
    """Return the server's certificate.

    The content of a store decides later how it is read. Java, too, reads a PKCS12 store whose type
    is given as JKS.
    """
    chain = file.of_listener(listener, "ssl.keystore.certificate.chain")
    key = file.of_listener(listener, "ssl.keystore.key")
    location = file.of_listener(listener, "ssl.keystore.location")
    kind = file.of_listener(listener, "ssl.keystore.type", "JKS").upper()
    store_password = file.of_listener(listener, "ssl.keystore.password")
    key_password = file.of_listener(listener, "ssl.key.password")
    if chain and key:
        values = {"certificate_data": format_pem(key) + format_pem(chain)}
    elif location:
        values = {"certificate_file": location}
        key_password = key_password if kind == "PEM" else store_password
    else:
        raise file.refusal(
            "ssl.keystore.location", f"is missing; the listener {listener} needs a certificate"
        )
    return values | ({"key_password": key_password} if key_password else {})


def _authorities(file: KafkaProperties, listener: str) -> dict[str, str]:
    certificates = file.of_listener(listener, "ssl.truststore.certificates")
    location = file.of_listener(listener, "ssl.truststore.location")
    password = file.of_listener(listener, "ssl.truststore.password")
    file.of_listener(listener, "ssl.truststore.type")
    if certificates:
        return {"client_ca_data": format_pem(certificates)}
    if not location:
        return {}
    return {"client_ca_file": location, **({"client_ca_password": password} if password else {})}


def _client_auth(file: KafkaProperties, listener: str, *, has_sasl: bool) -> str:
    auth = file.of_listener(listener, _CLIENT_AUTH, "none").lower()
    if auth not in {"none", "requested", "required"}:
        raise file.refusal(_CLIENT_AUTH, "must be none, requested or required")
    if has_sasl and auth != "none" and file.own_key(listener, _CLIENT_AUTH) not in file.values:
        # As in Kafka: the broker's own value is for listeners whose clients do not log in.
        own = file.own_key(listener, _CLIENT_AUTH)
        file.warn(
            f"{_CLIENT_AUTH} does not apply to the listener {listener}, which has SASL; set {own}"
        )
        return "none"
    return auth


def format_pem(text: str) -> str:
    """Return PEM text with line ends; Kafka accepts it on one line, OpenSSL does not."""
    blocks = []
    for kind, body in _BLOCK.findall(text):
        data = "".join(body.split())
        lines = [data[at : at + _LINE] for at in range(0, len(data), _LINE)]
        blocks.append("\n".join((f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", "")))
    return "".join(blocks)
