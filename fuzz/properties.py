"""Fuzz Java's `client.properties` and JAAS strings: `python fuzz/properties.py -max_total_time=60`.

Any file gives settings or one of our errors. A password never gets into the text of an error.
"""

from __future__ import annotations

import contextlib
import logging
import sys

import atheris

with atheris.instrument_imports(include=["rookery"]):
    from rookery.client.properties import parse_client_properties
    from rookery.errors import ConfigError, Corrupt
    from rookery.formats.logfile.properties import format_properties, parse_properties

_SECRET = "planted-password-7f1d09c2"  # noqa: S105 (planted)
_KEYS = [
    "bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.jaas.config",
    "ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.certificates",
    "ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.key", "ssl.key.password",
    "ssl.endpoint.identification.algorithm", "sasl.oauthbearer.token.endpoint.url", "client.id",
]  # fmt: skip
_VALUES = [
    "SASL_SSL", "sasl_plaintext", "SSL", "PLAIN", "SCRAM-SHA-512", "OAUTHBEARER", "PEM", "JKS",
    "https", "", "file:///token", "http://host/token", "127.0.0.1:9093", "[::1]:x", "a,b,:",
]  # fmt: skip
_JAAS = [
    "org.apache.kafka.common.security.plain.PlainLoginModule",
    "org.apache.kafka.common.security.scram.ScramLoginModule", "OAuthBearerLoginModule",
    " required", " REQUISITE", ' username="alice"', f' password="{_SECRET}"',
    f" password={_SECRET}",
    " tokenauth=true", ";", '"', "\\", '\\"', "=", " a=b=c", " ", "\n", "a" * 500, " x=y" * 200,
]  # fmt: skip
_MARKS = ["=", ":", " ", "\n", "\r\n", "\\\n", "\\u0041", "\\u", "\\ud83d\\ude00", "#", "!", "\\"]


def _joined(data: atheris.FuzzedDataProvider, pieces: list[str], most: int) -> str:
    parts = []
    for _ in range(data.ConsumeIntInRange(0, most)):
        is_known = data.ConsumeIntInRange(0, 3) > 0
        parts.append(
            data.PickValueInList(pieces) if is_known else data.ConsumeUnicodeNoSurrogates(8)
        )
    return "".join(parts)


def _read(values: dict[str, str]) -> None:
    try:
        client = parse_client_properties(values)
        client.settings()
    except ConfigError as error:
        if _SECRET in str(error) or _SECRET in repr(error):
            raise AssertionError(f"an error shows the password: {error}") from None
    else:
        if _SECRET in repr(client):
            raise AssertionError("the settings print the password")


def test_one_input(raw: bytes) -> None:
    """Read one file, written by the fuzzer or made of settings."""
    data = atheris.FuzzedDataProvider(raw)
    if data.ConsumeBool():
        with contextlib.suppress(Corrupt):
            _read(parse_properties(_joined(data, [*_KEYS, *_VALUES, *_MARKS], 30)))
        return
    values = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    for _ in range(data.ConsumeIntInRange(0, 6)):
        values[data.PickValueInList(_KEYS)] = data.PickValueInList(_VALUES)
    values["sasl.jaas.config"] = _joined(data, _JAAS, 8)
    if parse_properties(format_properties(values)) != values:
        raise AssertionError("properties do not come back")
    _read(values)


def main() -> None:
    """Fuzz until told to stop."""
    logging.disable()
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
