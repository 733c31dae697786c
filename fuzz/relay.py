"""Fuzz the direct relay of the proxy: `python fuzz/relay.py -max_total_time=60`.

The compiled window and its twin do the same with any requests and responses, however they are cut,
and leave the same requests. No response with addresses passes unread: what passes and can be
decoded has none.
"""

from __future__ import annotations

import struct
import sys
from types import ModuleType
from typing import Any

import atheris

with atheris.instrument_imports(include=["rookery.proxy", "rookery.wire"]):
    from rookery.errors import ProtocolError
    from rookery.proxy.addresses import read_addresses
    from rookery.proxy.direct import _window, windowtwin
    from rookery.proxy.direct.acksform import AcksForm
    from rookery.proxy.direct.relayrules import rule_rows
    from rookery.proxy.passage import mirror_passages
    from rookery.wire.catalog import kafka_apis
    from rookery.wire.codec import read_response

LIMIT = 1 << 20
CAPACITY = 4
ROWS = rule_rows(mirror_passages(), 30_000, 300_000)
HINTED = [row for row in ROWS if row[4] is not None]
APIS = kafka_apis()


def framed(provider: atheris.FuzzedDataProvider, head: bytes) -> bytes:
    """Return a frame that begins with some bytes, of the right length or of a wrong one."""
    body = head + provider.ConsumeBytes(provider.ConsumeIntInRange(0, 300))
    length = len(body) if provider.ConsumeIntInRange(0, 9) else provider.ConsumeInt(4)
    return (length % 2**32).to_bytes(4, "big") + body


def run(window: Any, take: str, data: bytes, cuts: list[int], *rest: float) -> list[Any]:
    """Let bytes arrive in pieces; return what the window does, and the bytes that it leaves."""
    room, steps, at = bytearray(data), list[Any](), 0
    for end in sorted({min(cut, len(data)) for cut in [*cuts, len(data)]}):
        at = getattr(window, take)(room, at, end, LIMIT, *rest)
        steps.append((at, window.taken, window.awaited, window.is_stopped, window.count))
        if window.is_stopped:
            break
    return [*steps, bytes(room)]


def one_input(data: bytes) -> None:
    """Compare both windows."""
    provider = atheris.FuzzedDataProvider(data)
    rows = [ROWS[provider.ConsumeIntInRange(0, len(ROWS) - 1)] for _ in range(3)]
    cuts = [provider.ConsumeIntInRange(0, 2000) for _ in range(3)]
    heads = [struct.pack(">hhi", row[0], row[1], number) for number, row in enumerate(rows)]
    requests = b"".join(framed(provider, head) for head in heads)
    windows = [open_window(module) for module in (_window, windowtwin)]
    first, second = (run(window, "take_requests", requests, cuts, 5.0) for window in windows)
    if first != second:
        raise AssertionError("the windows take other requests")
    answers = b"".join(framed(provider, number.to_bytes(4, "big")) for number in range(3))
    first, second = (run(window, "take_answers", answers, cuts) for window in windows)
    if first != second:
        raise AssertionError("the windows take other responses")
    left = [window.drain() for window in windows]
    if left[0] != left[1]:
        raise AssertionError("the windows leave other requests")
    check_program(provider)


def open_window(module: ModuleType) -> Any:
    """Return a window with all rules of mirror nodes."""
    return module.RelayWindow(module.RelayRules(ROWS), CAPACITY)


def check_program(provider: atheris.FuzzedDataProvider) -> None:
    """Let one response arrive that can have addresses: it is stopped, or has none."""
    key, version, *_, program = HINTED[provider.ConsumeIntInRange(0, len(HINTED) - 1)]
    # As if every request had a response.
    rules = _window.RelayRules([(key, version, 1, AcksForm.UNREAD, program)])
    window = _window.RelayWindow(rules, 1)
    request = bytearray(struct.pack(">ihhi", 8, key, version, 0))
    window.take_requests(request, 0, len(request), LIMIT, 0.0)
    body = bytes(4) + provider.ConsumeBytes(provider.remaining_bytes())
    data = bytearray(len(body).to_bytes(4, "big") + body)
    if not window.take_answers(data, 0, len(data), LIMIT):
        return
    try:
        response = read_response(APIS[key], version, body)
    except ProtocolError:
        return
    if read_addresses(response):
        raise AssertionError("a response with addresses passes")


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
