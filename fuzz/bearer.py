"""Fuzz the check of bearer tokens and JWK sets: `python fuzz/bearer.py -max_total_time=60`.

A token is accepted or refused by one of our errors, and only a token that the issuer has signed is
accepted. A JWK set gives keys or a ConfigError.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["rookery", "jwt"]):
    import jwt
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    from rookery.clock import SystemClock
    from rookery.errors import ApiError, ConfigError
    from rookery.security.bearer import ALGORITHMS, BearerSettings, TokenVerifier
    from rookery.security.sasl import open_server
    from rookery.testing.accounts import MemoryAccounts

_ISSUER, _AUDIENCE = "https://issuer.example", "rookery"
_KEYS = {
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "RS256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
}
_HEADERS = [*ALGORITHMS, "none", "HS256", "", "es256"]
_KEY_IDS = ["ES256", "RS256", "other", "", None, 1, [], {}]
# Values of claims that a number, a name or a list of names must not be taken for.
_VALUES = [
    "alice", "", _ISSUER, _AUDIENCE, [_AUDIENCE], [], {}, None, True, 0, -1, 1.5, 2**31, 2**63,
    10**400, -(10**400), float("inf"), float("-inf"), float("nan"), 32_503_680_000, "32503680000",
]  # fmt: skip
_FAR = 32_503_680_001
_NUMBERS = ["1e400", "-1e400", "NaN", "9" * 5000, "1e-400", "0.1e1", "-0", "00"]
_NESTED = ["[" * 20_000, '{"a":' * 20_000, "[" * 900 + "]" * 900]
_FIELDS = ["kty", "kid", "alg", "use", "crv", "x", "y", "n", "e", "d", "k", "keys", "key_ops"]


def _row(name: str, *, declares: bool) -> dict[str, object]:
    kind = jwt.algorithms.get_default_algorithms()[name]
    row: dict[str, object] = json.loads(kind.to_jwk(_KEYS[name].public_key()))
    return row | {"kid": name, "use": "sig"} | ({"alg": name} if declares else {})


def _open(folder: Path, *, declares: bool) -> TokenVerifier:
    """Return a check of tokens whose keys name their algorithms, or do not."""
    path = folder / f"jwks-{declares}.json"
    path.write_text(json.dumps({"keys": [_row(name, declares=declares) for name in _KEYS]}))
    verifier = TokenVerifier(BearerSettings(str(path), _ISSUER, _AUDIENCE), SystemClock())
    verifier.refresh()
    return verifier


_FOLDER = Path(tempfile.mkdtemp(prefix="fuzz-bearer-"))
_VERIFIERS = [_open(_FOLDER, declares=True), _open(_FOLDER, declares=False)]
_SET = _FOLDER / "fuzzed.json"
_READER = TokenVerifier(BearerSettings(str(_SET), _ISSUER, _AUDIENCE), SystemClock())


def _encode(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _json(data: atheris.FuzzedDataProvider, value: object) -> bytes:
    """Return JSON, sometimes with a number or a depth that Python's own encoder never writes."""
    text = json.dumps(value)
    if data.ConsumeBool():
        return text.encode()
    place = data.ConsumeIntInRange(0, len(text))
    extra = data.PickValueInList([*_NUMBERS, *_NESTED, "\ud800", "\0", ","])
    if data.ConsumeBool():
        text = text.replace(str(_FAR), extra)
    else:
        text = text[:place] + extra + text[place:]
    return text.encode("utf-8", "surrogatepass")


def _token(data: atheris.FuzzedDataProvider) -> tuple[str, bool]:
    """Return a token, and whether the issuer has signed it."""
    header = {"alg": data.PickValueInList(_HEADERS), "kid": data.PickValueInList(_KEY_IDS)}
    if data.ConsumeBool():
        header["typ"] = data.PickValueInList(_VALUES)
    if data.ConsumeBool():
        header[data.PickValueInList(["crit", "b64", "jwk", "x5u"])] = data.PickValueInList(_VALUES)
    claims = {"sub": "alice", "iss": _ISSUER, "aud": _AUDIENCE, "exp": _FAR}
    for _ in range(data.ConsumeIntInRange(0, 3)):
        name = data.PickValueInList(["sub", "iss", "aud", "exp", "nbf", "iat", "jti"])
        claims[name] = data.PickValueInList(_VALUES)
    signed = _encode(_json(data, header)) + b"." + _encode(_json(data, claims))
    name = data.PickValueInList(["ES256", "RS256", ""])
    if name:
        algorithm = jwt.algorithms.get_default_algorithms()[name]
        signature = algorithm.sign(signed, _KEYS[name])
    else:
        signature = data.ConsumeBytes(data.ConsumeIntInRange(0, 80))
    return (signed + b"." + _encode(signature)).decode(), bool(name)


def _check_token(data: atheris.FuzzedDataProvider) -> None:
    is_signed = False
    if data.ConsumeBool():
        token, is_signed = _token(data)
    else:
        token = data.ConsumeUnicode(200)
    accounts = MemoryAccounts({})
    accounts.check_token = data.PickValueInList(_VERIFIERS).check  # type: ignore[method-assign]
    server = open_server("OAUTHBEARER", accounts, "server-nonce")
    message = f"n,,\x01auth=Bearer {token}\x01\x01".encode("utf-8", "surrogatepass")
    with contextlib.suppress(ApiError):
        server.respond(message)
    if server.is_done and not is_signed:
        raise AssertionError("a token was accepted that the issuer did not sign")
    if server.is_done and not (server.username and 0 < server.expires_ms < 2**63):
        raise AssertionError(f"{server.username!r} until {server.expires_ms}")


def _check_set(data: atheris.FuzzedDataProvider) -> None:
    rows: list[object] = []
    for _ in range(data.ConsumeIntInRange(0, 3)):
        row = _row(data.PickValueInList(list(_KEYS)), declares=data.ConsumeBool())
        for _ in range(data.ConsumeIntInRange(0, 3)):
            words = [*_VALUES, *ALGORITHMS, "RSA", "EC", "OKP", "oct", "P-521", "Ed25519", "AQAB"]
            row[data.PickValueInList(_FIELDS)] = data.PickValueInList(words)
        rows.append(row if data.ConsumeBool() else data.PickValueInList(_VALUES))
    whole: object = {"keys": rows if data.ConsumeBool() else data.PickValueInList(_VALUES)}
    text = _json(data, whole) if data.ConsumeBool() else data.ConsumeBytes(200)
    _SET.write_bytes(text)
    with contextlib.suppress(ConfigError):
        _READER.refresh()


def test_one_input(raw: bytes) -> None:
    """Check one token or one JWK set."""
    data = atheris.FuzzedDataProvider(raw)
    if data.ConsumeBool():
        _check_token(data)
    else:
        _check_set(data)


def main() -> None:
    """Fuzz until told to stop."""
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
