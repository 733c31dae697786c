"""Fuzz the batch parser: nothing but our own errors may come out, and the twin must agree.

Run `python fuzz/batch.py -max_total_time=60`.
"""

from __future__ import annotations

import sys
from types import ModuleType

import atheris

with atheris.instrument_imports(include=["rookery"]):
    from rookery.errors import Error
    from rookery.records import batches, kernel
    from rookery.records.batches import BatchHeader
    from rookery.records.kernel import Buffer
    from rookery.records.recordcodec import Record, control, payload, read_all
    from rookery.records.twins import kerneltwin

_LIMIT = 1 << 20
_CODECS = 0b11111 << kernel.CODECS_SHIFT


def _sealed(data: bytes) -> bytes:
    # Left alone, hardly any input would ever pass the CRC: some are given a right one.
    header = BatchHeader._make((*batches.FIELDS.unpack_from(data), 0))
    body = data[batches.HEADER_SIZE :]
    return batches.seal(header, body) + body


def _wrapped(data: bytes) -> bytes:
    # The whole input is records; the header gives their count, offsets and codec.
    bits, count, delta = data[0], data[1] % 16, data[2] % 32
    header = BatchHeader(0, 0, 0, 2, 0, bits, delta, 0, 0, 1, 1, 1, count)
    return batches.seal(header, data[3:]) + data[3:]


def _outcome(module: ModuleType, body: Buffer, header: BatchHeader) -> object:
    try:
        return module.walk(body, header), list(module.decode(body, header, Record))
    except Error as error:
        return str(error)


def _records(data: bytes, header: BatchHeader) -> None:
    try:
        body = payload(data, header, _LIMIT)
    except Error:
        return
    outcome = _outcome(kernel, body, header)
    if outcome != _outcome(kerneltwin, body, header):
        raise AssertionError("the kernel and its twin differ on records")
    for record in outcome[1] if isinstance(outcome, tuple) else ():
        _control(record)


def _control(record: Record) -> None:
    try:
        control(record)
    except Error:
        return


def _batches(data: bytes) -> None:
    for check in (batches.validate, batches.verify, batches.check_fetched, batches.parse):
        try:
            check(data)
        except Error:
            continue
    try:
        list(read_all(data, _LIMIT))
    except Error:
        return


def _compare(data: bytes) -> None:
    for rules in (_CODECS, _CODECS | kernel.FROM_PRODUCER):
        rows = kernel.scan(data, rules)
        if rows != kerneltwin.scan(data, rules):
            raise AssertionError("the kernel and its twin differ on headers")
        for row in rows[0]:
            _records(data, BatchHeader._make(row))


def TestOneInput(data: bytes) -> None:  # noqa: N802 (atheris wants this name)
    """Treat the input as batches; the first byte says how much is put right beforehand."""
    way, data = data[:1], data[1:]
    if way > b"\xa0" and len(data) >= 3:
        data = _wrapped(data)
    elif way > b"\x50" and len(data) >= batches.HEADER_SIZE:
        data = _sealed(data)
    _batches(data)
    _compare(data)


if __name__ == "__main__":
    atheris.Setup(sys.argv, TestOneInput)
    atheris.Fuzz()
