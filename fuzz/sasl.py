"""Fuzz both sides of every SASL mechanism: `python fuzz/sasl.py -max_total_time=60`.

Whatever a peer sends is answered or refused by one of our errors, and no client gets in without the
password.
"""

from __future__ import annotations

import contextlib
import sys

import atheris

with atheris.instrument_imports(include=["rookery"]):
    from rookery.errors import ApiError, ProtocolError
    from rookery.security.sasl import (
        ClientExchange,
        Login,
        ServerExchange,
        mechanisms,
        open_client,
        open_server,
    )
    from rookery.testing.accounts import MemoryAccounts

    # Imports the modules of the folder; they must be instrumented as well.
    _NAMES = list(mechanisms())

_ACCOUNTS = MemoryAccounts({"alice": "a password that no fuzzer guesses: 7f1d09c2"})
# What the fuzzer may stick together; alone it would need hours to find its way past the syntax.
_PIECES = [
    b"n,,", b"y,,", b"p=tls-unique,,", b"n=alice", b"n=bob", b"a=alice,", b",r=client-nonce",
    b",r=client-nonceserver-nonce", b"c=biws", b"c=eSws", b",p=", b",p=AAAA", b"v=AAAA", b"e=no",
    b",s=c2FsdA==", b",i=4096", b",i=2147483647", b",m=x", b",tokenauth=true", b"=2C", b"=3D",
    b"\0", b"alice", b"r=client-nonceserver-nonce", b",", b"=", b"\x01", b"auth=Bearer ", b"a.b.c",
    b"\x01\x01", b'{"status":"invalid_token"}', b",x=1", b",tokenauth=TRUE", b",tokenauth=", b"a=",
    b"n,a=alice,,", b"n,a=bob,", b"=", b"=2c", b"\xff", b"\xed\xa0\x80", b"n," * 500, b"r" * 2000,
    b",x=y" * 500, b"\0" * 500, b"host=h\x01port=1\x01", b"auth=bearer x\x01" * 2, b"=3D" * 300,
]  # fmt: skip
_LONGEST = 64 * 1024


def _message(data: atheris.FuzzedDataProvider) -> bytes:
    parts: list[bytes] = []
    for _ in range(data.ConsumeIntInRange(0, 8)):
        if data.ConsumeBool():
            parts.append(data.PickValueInList(_PIECES))
        else:
            parts.append(data.ConsumeBytes(data.ConsumeIntInRange(0, 24)))
    return b"".join(parts)


def _feed(side: ClientExchange | ServerExchange, message: bytes) -> None:
    with contextlib.suppress(ApiError, ProtocolError):
        side.respond(message)


def test_one_input(raw: bytes) -> None:
    """Run one exchange on each side with what the fuzzer says."""
    data = atheris.FuzzedDataProvider(raw)
    name = data.PickValueInList(_NAMES)
    server = open_server(name, _ACCOUNTS, "server-nonce")
    client = open_client(name, Login("alice", "another-password", "client-nonce"))
    if data.ConsumeBool():
        _feed(server, b"n,,n=alice,r=client-nonce")
        _feed(client, b"r=client-nonceserver-nonce,s=c2FsdA==,i=4096")
    for _ in range(data.ConsumeIntInRange(1, 3)):
        message = _message(data)
        _feed(server, message)
        _feed(client, message)
    if not isinstance(server.claimed_name, str) or len(server.claimed_name) > _LONGEST:
        raise AssertionError(f"{name}: the claimed name is not a name")
    if server.is_done:
        raise AssertionError(f"{name}: someone got in without the password")
    # Only SCRAM proves the server.
    if client.is_done and name.startswith("SCRAM"):
        raise AssertionError(f"{name}: the client trusts a server without proof")


def main() -> None:
    """Fuzz until told to stop."""
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
