"""Fuzz the request decoder of every API and version: `python fuzz/request.py -max_total_time=60`.

Any bytes give a request or a ProtocolError; both interpreters agree; and what was read can be
written and read again.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["rookery.wire"]):
    from rookery.errors import ProtocolError
    from rookery.wire import _twin
    from rookery.wire.catalog import apis
    from rookery.wire.codec import decode, encode_bytes, table_of

REFUSED = b"refused by the twin: no message begins like this"
TARGETS = [(api.request, version) for api in apis().values() for version in api.versions]


def test_one_input(data: bytes) -> None:
    """Take two bytes to choose a message, and decode the rest as one."""
    if len(data) < 2:
        return
    message, version = TARGETS[int.from_bytes(data[:2], "big") % len(TARGETS)]
    body = data[2:]
    twin_says = twin_outcome(message, version, body)
    try:
        request = decode(message, version, body)
    except ProtocolError as error:
        if not twin_says.startswith(REFUSED):
            raise AssertionError(f"only the compiled codec refuses: {error}") from None
        return
    wire = encode_bytes(request, version)
    if wire != twin_says or encode_bytes(decode(message, version, wire), version) != wire:
        raise AssertionError(f"{message.__name__} v{version} does not come back")


def twin_outcome(message: type, version: int, body: bytes) -> bytes:
    """Return the twin's reading as bytes, or that it refused."""
    table = table_of(message, version)
    try:
        request, end = _twin.read(table, body, 0)
    except ProtocolError:
        return REFUSED
    if end != len(body):
        return REFUSED
    return b"".join(_twin.write(table, request))


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
