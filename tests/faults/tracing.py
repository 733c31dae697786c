"""The system calls of a broker: writes, syncs and answers, in order."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from rookery.testing.broker import BrokerProcess

_CALLS: Final = "pwrite64,pwritev,pwritev2,write,writev,fsync,fdatasync,sendto,sendmsg"
_LINE: Final = re.compile(r"(\d+) +(.*)")
_RESUMED: Final = re.compile(r"<\.\.\. \w+ resumed>")
_CALL: Final = re.compile(r"(\w+)\(\d+<(.*?)>(.*)")
_UNFINISHED: Final = " <unfinished ...>"
# All of the largest write of these tests, each byte as up to four characters.
_SHOWN_BYTES: Final = 5_000


class Event(NamedTuple):
    """A call that began, or that has returned well."""

    is_done: bool
    name: str
    path: str
    rest: str


class TracedBroker(BrokerProcess):
    """A broker under strace, which ends with it."""

    def __init__(self, folder: Path, durability: str) -> None:
        # Nothing of its own accord: each write of the trace belongs to what the test sent.
        quiet = ("--beat-interval-ms", "500000", "--session-timeout-ms", "1000000")
        super().__init__(
            folder,
            flags=(*quiet, "--upkeep-interval-ms", "500000", "--durability", durability),
        )
        self.trace = folder.with_name(folder.name + ".trace")

    def command(self) -> list[str]:
        """Return the command line."""
        strace = shutil.which("strace")
        if strace is None:
            pytest.skip("needs strace")
        options = ("-D", "-f", "-y", "-s", str(_SHOWN_BYTES), "-o", str(self.trace))
        return [strace, *options, "-e", f"trace={_CALLS}", *super().command()]


def events(lines: list[str]) -> Iterator[Event]:
    """Return when calls began and when they returned, of all threads, in order."""
    begun: dict[str, str] = {}
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            continue
        thread, text = match.groups()
        if thread in begun:
            text = begun.pop(thread) + _RESUMED.sub("", text)
        else:
            yield from _event(text, is_done=False)
        if text.endswith(_UNFINISHED):
            begun[thread] = text.removesuffix(_UNFINISHED)
        elif " = -1 " not in text:
            yield from _event(text, is_done=True)


def _event(text: str, *, is_done: bool) -> Iterator[Event]:
    if call := _CALL.match(text):
        yield Event(is_done, *call.groups())
