"""Records are decoded and encoded without the interpreter's lock: others run meanwhile.

The interpreter is set never to take the lock away, so another thread can run only while it is
released. That thread notes the time repeatedly; if it does so in the middle of one call into
the kernel, the call was not holding the lock.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

from rookery.records.batches import BatchHeader, seal
from rookery.records.reading import PartitionBatches, ReadSettings

native = pytest.importorskip("rookery.records._columns")
ATTEMPTS = 50


@contextmanager
def watcher() -> Iterator[list[float]]:
    """Note the time whenever another thread lets us, in a list."""
    ticks: list[float] = []
    is_done = threading.Event()

    def watch() -> None:
        while not is_done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0)  # releases the lock, or we would never get it back

    thread = threading.Thread(target=watch)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    thread.start()
    try:
        yield ticks
    finally:
        is_done.set()
        thread.join()
        sys.setswitchinterval(interval)


def was_seen_inside(run: Callable[[], object], attempts: int) -> bool:
    """Return whether the watcher ran in the middle half of a call, at least once."""
    for _ in range(attempts):
        with watcher() as ticks:
            start = time.perf_counter()
            run()
            stop = time.perf_counter()
        margin = (stop - start) / 4
        if any(start + margin < tick < stop - margin for tick in ticks):
            return True
    return False


def busy() -> int:
    return sum(i * i for i in range(1_000_000))


def test_watcher_thread_does_not_run_while_the_gil_is_held() -> None:
    assert not was_seen_inside(busy, 5)


def test_decoding_releases_the_gil() -> None:
    count = 1_000_000
    records = b"\x0c\0\0\0\1\1\0" * count
    header = BatchHeader(0, 0, 0, 2, 0, 0, count, 0, 0, -1, -1, -1, count)
    data = seal(header, records) + records

    def run() -> None:
        decoder = native.Decoder(ReadSettings(("offset",), check_crc=False))
        for _ in range(5):
            decoder.open(PartitionBatches("t", 0, data))
            assert decoder.take() is None
        start = time.perf_counter()
        assert decoder.drain().num_rows == 5 * count
        spent.append(time.perf_counter() - start)

    spent: list[float] = []
    assert was_seen_inside(run, ATTEMPTS), spent


def test_encoding_releases_the_gil() -> None:
    rows = pa.record_batch({"value": pa.array([b""] * 3_000_000, pa.binary())})
    packer = native.Packer(rows, -1)

    assert was_seen_inside(lambda: packer.pack(0, 0, 2**31 - 62), ATTEMPTS)
