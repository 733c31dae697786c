"""The public keys of an issuer of tokens: a JWK set, from a file or an https URL.

The server of the URL is trusted to name the keys, but not to answer well: size and duration of an
answer are bounded, and a redirect must lead to https again. Keys that cannot be used are left out,
as RFC 7517 asks, so that a new kind of key among the old ones does no harm.
"""

from __future__ import annotations

import json
import logging
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage, HTTPResponse
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final

from rookery.clock import Clock
from rookery.errors import ConfigError, Unavailable

log = logging.getLogger(__name__)

ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""The accepted signature algorithms."""
MAX_JWKS_BYTES: Final = 1024 * 1024
READ_LIMIT_MS: Final = 30_000
"""How long an answer may take; a server could send it byte by byte."""
_TIMEOUT_SECONDS: Final = 10
_CHUNK_BYTES: Final = 64 * 1024
_SETTING: Final = "oauth_jwks"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """One key of the issuer."""

    key_id: str | None
    declared: str | None
    """The algorithm that the set declares for it."""
    public: Any


def is_url(place: str) -> bool:
    """Return whether keys are read over the network."""
    return "://" in place


def read_jwks(place: str, clock: Clock) -> bytes:
    """Read a JWK set; this may block.

    Raises:
        Unavailable: it cannot be read, or the answer is too long or too slow.
    """
    try:
        if not is_url(place):
            return Path(place).read_bytes()
        end_ms = clock.monotonic_ms() + READ_LIMIT_MS
        opener = urllib.request.build_opener(_SecureRedirects())
        with opener.open(place, timeout=_TIMEOUT_SECONDS) as answer:
            return _read_body(answer, place, clock, end_ms)
    # A server that does not speak HTTP, or ends its answer early, is an HTTPException.
    except (OSError, HTTPException) as error:
        raise Unavailable(f"{_SETTING}: {place}: {str(error) or repr(error)}") from error


def parse_keys(data: bytes, place: str) -> list[SigningKey]:
    """Return the usable keys of a JWK set.

    Raises:
        ConfigError: it is not a JWK set, or has no usable key.
    """
    try:
        rows = json.loads(data)["keys"]
        usable = [row for row in rows if isinstance(row, dict) and _is_usable(row)]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"{place}: not a JWK set: {error!r}", name=_SETTING) from None
    parsed = [key for row in usable if (key := _parse_key(row)) is not None]
    if not parsed:
        raise ConfigError(f"{place}: has no public signing key", name=_SETTING)
    return parsed


class _SecureRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to https only: anyone on the way could replace keys sent without it."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if not newurl.lower().startswith("https://"):
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _read_body(answer: HTTPResponse, place: str, clock: Clock, end_ms: int) -> bytes:
    data = bytearray()
    while chunk := answer.read1(_CHUNK_BYTES):
        data += chunk
        if len(data) > MAX_JWKS_BYTES:
            raise Unavailable(f"{_SETTING}: {place}: longer than {MAX_JWKS_BYTES} bytes")
        if clock.monotonic_ms() >= end_ms:
            raise Unavailable(f"{_SETTING}: {place}: not complete after {READ_LIMIT_MS} ms")
    if answer.length:
        raise Unavailable(f"{_SETTING}: {place}: the answer lacks {answer.length} bytes")
    return bytes(data)


def _is_usable(row: dict[str, Any]) -> bool:
    """Return whether a row is a public key for signatures of an accepted algorithm."""
    is_asymmetric = row.get("kty") in ("RSA", "EC", "OKP") and row.get("use", "sig") == "sig"
    return is_asymmetric and row.get("alg", ALGORITHMS[0]) in ALGORITHMS


def _parse_key(row: dict[str, Any]) -> SigningKey | None:
    jwt = import_module("jwt")
    key_id = row.get("kid")
    try:
        public = jwt.PyJWK(row).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError) as error:
        log.info("a key of the JWK set is not usable: %s", error)
        return None
    # A set should have public keys only; the public half of a private one is enough here.
    if hasattr(public, "public_key"):
        public = public.public_key()
    return SigningKey(key_id if isinstance(key_id, str) else None, row.get("alg"), public)
