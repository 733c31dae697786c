"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), without channel binding, as Kafka has it.

    client                                server
      n,,n=user,r=C            ──►
                               ◄──   r=CS,s=salt,i=iterations
      c=biws,r=CS,p=proof      ──►
                               ◄──   v=signature

The client proves that it knows the password, and the server that it knows the credential; an
eavesdropper learns neither. C and S are the nonces of the two sides. Secrets are compared in
constant time.

With Kafka's extension `tokenauth=true` in the client's first message, the name is the id of a
delegation token and the password is the token's HMAC in base64. The user is the token's owner.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from typing import NamedTuple

from rookery.errors import ProtocolError
from rookery.security.credential import (
    HASHES,
    ScramCredential,
    check_iterations,
    client_key,
    digest,
    salted_password,
    server_key,
    sign,
)
from rookery.security.sasl import (
    Accounts,
    Login,
    check_login,
    read_challenge,
    read_response,
    refusal,
)

NAMES = tuple(HASHES)

_NO_BINDING = "n,,"
# RFC 5802's "printable": visible ASCII without the comma.
_NONCE = re.compile(r"[!-+\--~]{8,1024}")
_TOKEN_AUTH, _YES = "tokenauth", "true"
_EXTENSIONS = r"((?:,[A-Za-z]+=[^,\0]+)*)"
_CLIENT_FIRST = re.compile(
    r"([ny]),(?:a=([^,\0]+))?,(n=([^,\0]+),r=([!-+\--~]{1,1024})" + _EXTENSIONS + ")"
)
_SERVER_FIRST = re.compile(
    r"r=([!-+\--~]{1,2048}),s=([A-Za-z0-9+/=]+),i=([0-9]{1,10})" + _EXTENSIONS
)
_CLIENT_FINAL = re.compile(
    r"(c=([A-Za-z0-9+/=]+),r=([!-+\--~]{1,2048})" + _EXTENSIONS + r"),p=([A-Za-z0-9+/=]+)"
)
_SERVER_FINAL = re.compile(r"(?:v=([A-Za-z0-9+/=]+)|e=([^,\0]+))" + _EXTENSIONS)


def client(name: str, login: Login) -> ScramClient:
    """Begin an exchange as the client."""
    return ScramClient(name, login)


def server(name: str, accounts: Accounts, nonce: str) -> ScramServer:
    """Begin an exchange as the server."""
    return ScramServer(name, accounts, nonce)


class ScramClient:
    """The client side of a login to a broker."""

    def __init__(self, mechanism: str, login: Login) -> None:
        check_login(mechanism, login)
        _check_nonce(login.nonce)
        self._mechanism = mechanism
        self._login = login
        self._first_bare = f"n={_escape(login.username)},r={login.nonce}"
        if login.is_token:
            self._first_bare += f",{_TOKEN_AUTH}={_YES}"
        self._signature = b""
        self._step = ScramClient._on_server_first
        self.is_done = False

    def first(self) -> bytes:
        """Return the client's first message."""
        return f"{_NO_BINDING}{self._first_bare}".encode()

    def respond(self, challenge: bytes) -> bytes:
        """Take the server's message, return ours (empty when done)."""
        step, self._step = self._step, ScramClient._on_failed
        return step(self, read_challenge(challenge))

    def _on_server_first(self, message: str) -> bytes:
        server_first = _parse_server_first(message, self._login.nonce)
        salted = salted_password(
            self._mechanism, self._login.password, server_first.salt, server_first.iterations
        )
        final = f"c={_base64(_NO_BINDING.encode())},r={server_first.nonce}"
        transcript = f"{self._first_bare},{message},{final}".encode()
        self._signature = sign(self._mechanism, server_key(self._mechanism, salted), transcript)
        self._step = ScramClient._on_server_final
        return f"{final},p={_base64(self._proof(salted, transcript))}".encode()

    def _proof(self, salted: bytes, transcript: bytes) -> bytes:
        key = client_key(self._mechanism, salted)
        return _xor(key, sign(self._mechanism, digest(self._mechanism, key), transcript))

    def _on_server_final(self, message: str) -> bytes:
        match = _SERVER_FINAL.fullmatch(message)
        if match is None:
            raise ProtocolError("the server's last SCRAM message is malformed")
        signature, error = match[1], match[2]
        if error:
            raise refusal(f"the server says {error[:100]!r}")
        if not hmac.compare_digest(_unbase64(signature), self._signature):
            raise refusal("the server could not prove that it knows us; is it the right one?")
        self.is_done = True
        return b""

    def _on_failed(self, message: str) -> bytes:  # noqa: ARG002 (a step like the others)
        raise ProtocolError("the SCRAM exchange is over, but the server sent a message")


class ScramServer:
    """The broker's side of a client's login."""

    def __init__(self, mechanism: str, accounts: Accounts, nonce: str) -> None:
        _check_nonce(nonce)
        self._mechanism = mechanism
        self._accounts = accounts
        self._nonce = nonce
        self._step = ScramServer._on_client_first
        self.is_done = False
        self.claimed_name = ""
        self.expires_ms = 0
        self.has_delegation_token = False

    @property
    def username(self) -> str:
        """Return the authenticated user name; the owner's if the client has a token."""
        if not self.is_done:
            raise RuntimeError("the client has not proved who it is")
        return self._username

    def respond(self, message: bytes) -> bytes:
        """Take the client's message, return the answer."""
        step, self._step = self._step, ScramServer._on_failed
        return step(self, read_response(message))

    def _on_client_first(self, message: str) -> bytes:
        self._first = _parse_client_first(message)
        self.claimed_name = self._first.username
        known = self._find_credential(self._first)
        # The decoy is computed in any case, so that the time is the same for a known name.
        decoy = self._accounts.decoy(
            self._mechanism, self._first.username, is_token=self._first.is_token
        )
        self._is_known = known is not None
        self._credential = known or decoy
        # The server's part comes second, so the client's first bytes cannot make two nonces equal.
        self._nonce = self._first.nonce + self._nonce
        self._server_first = (
            f"r={self._nonce},s={_base64(self._credential.salt)},i={self._credential.iterations}"
        )
        self._step = ScramServer._on_client_final
        return self._server_first.encode()

    def _find_credential(self, first: _ClientFirst) -> ScramCredential | None:
        self._username = first.username
        if not first.is_token:
            return self._accounts.scram(self._mechanism, first.username)
        self.has_delegation_token = True
        token = self._accounts.delegation_token(self._mechanism, first.username)
        if token is None:
            return None
        self._username, self.expires_ms = token.owner, token.expires_ms
        return token.scram

    def _on_client_final(self, message: str) -> bytes:
        match = _CLIENT_FINAL.fullmatch(message)
        if match is None or "m=" in _extension_keys(match[4]):
            raise refusal("the client's last SCRAM message is malformed")
        final, binding, nonce, _, proof = match.groups()
        self._check_echo(binding, nonce)
        transcript = f"{self._first.bare},{self._server_first},{final}".encode()
        self._check_proof(proof, transcript)
        signature = sign(self._mechanism, self._credential.server_key, transcript)
        self.is_done = True
        return f"v={_base64(signature)}".encode()

    def _check_echo(self, binding: str, nonce: str) -> None:
        # The final message must belong to this exchange: no replay, no changed flags
        # (CVE-2024-56128).
        is_ours = hmac.compare_digest(nonce.encode(), self._nonce.encode())
        if not is_ours or binding != _base64(self._first.header.encode()):
            raise refusal()

    def _check_proof(self, proof: str, transcript: bytes) -> None:
        stored_key = self._credential.stored_key
        signature = sign(self._mechanism, stored_key, transcript)
        try:
            key = _xor(_unbase64(proof), signature)
        except ProtocolError:
            raise refusal() from None
        is_right = hmac.compare_digest(digest(self._mechanism, key), stored_key)
        if not (is_right and self._is_known):
            raise refusal()

    def _on_failed(self, message: str) -> bytes:  # noqa: ARG002 (a step like the others)
        raise refusal("the SCRAM exchange is over")


class _ClientFirst(NamedTuple):
    header: str
    bare: str
    username: str
    nonce: str
    is_token: bool


class _ServerFirst(NamedTuple):
    nonce: str
    salt: bytes
    iterations: int


def _parse_client_first(message: str) -> _ClientFirst:
    if message.startswith("p="):
        raise refusal("channel binding is not offered")
    match = _CLIENT_FIRST.fullmatch(message)
    if match is None:
        raise refusal("the client's first SCRAM message is malformed")
    _, authorization_id, bare, name, nonce, extensions = match.groups()
    username = _unescape(name)
    if authorization_id is not None and _unescape(authorization_id) != username:
        raise refusal("the authorization id must be the user's own name")  # CVE-2017-12610
    is_token = _read_client_extensions(extensions)
    return _ClientFirst(message[: -len(bare)], bare, username, nonce, is_token)


def _read_client_extensions(extensions: str) -> bool:
    """Return whether the client logs in with a token; other optional extensions are ignored."""
    parts = extensions.split(",")
    if any(extension.startswith("m=") for extension in parts):
        raise refusal("a mandatory SCRAM extension is not known")
    values = dict(extension.split("=", 1) for extension in parts if extension)
    return values.get(_TOKEN_AUTH, "").lower() == _YES


def _parse_server_first(message: str, nonce: str) -> _ServerFirst:
    if message.startswith("e="):
        raise refusal(f"the server says {message[2:102]!r}")
    match = _SERVER_FIRST.fullmatch(message)
    if match is None:
        raise ProtocolError("the server's first SCRAM message is malformed")
    if "m=" in _extension_keys(match[4]):
        raise ProtocolError("the server demands a SCRAM extension that is not known")
    if not match[1].startswith(nonce) or len(match[1]) == len(nonce):
        raise ProtocolError("the server's SCRAM nonce does not extend ours")
    iterations = int(match[3])
    try:
        check_iterations(iterations)
    except ValueError as error:
        raise ProtocolError(f"the server is not to be trusted: {error}") from None
    return _ServerFirst(match[1], _unbase64(match[2]), iterations)


def _extension_keys(extensions: str) -> set[str]:
    return {extension.split("=")[0] + "=" for extension in extensions.split(",")}


def _check_nonce(nonce: str) -> None:
    if _NONCE.fullmatch(nonce) is None:
        raise ValueError("a SCRAM nonce is 8 to 1024 visible ASCII characters, commas excepted")


def _escape(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescape(name: str) -> str:
    if re.search("=(?!2C|3D)", name):
        raise refusal("the SCRAM user name is malformed")
    return name.replace("=2C", ",").replace("=3D", "=")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _unbase64(text: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except binascii.Error:
        data = b""
    # Spare bits at the end would allow several encodings of one value.
    if _base64(data) != text:
        raise ProtocolError("a SCRAM message holds malformed base64")
    return data


def _xor(left: bytes, right: bytes) -> bytes:
    if len(left) != len(right):
        raise ProtocolError("a SCRAM proof has the wrong length")
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
