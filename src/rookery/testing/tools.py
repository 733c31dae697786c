"""Kafka's command line tools, run one after the other in one Java that is started once.

Starting a Java takes longer than most tools run, so a test that calls several of them is several
times faster this way. A tool that must be killed, or that runs while others do, needs a Java of
its own: `rookery.testing.java.Java.command`.
"""

from __future__ import annotations

import base64
import select
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rookery.errors import Unavailable
from rookery.testing.java import TOOLS, Java

_ALONE: Final = frozenset({"kafka-verifiable-producer"})
"""Tools that print their result when their Java ends, and so need their own."""
_SOURCE: Final = Path(__file__).parent / "maven" / "ToolHost.java"


class ToolHost:
    """One Java for any number of calls of tools."""

    def __init__(self, java: Java, folder: Path) -> None:
        """Compile the host into a folder; it starts with the first call."""
        self._java = java
        self._command = java.command("ToolHost", classes=folder)
        self._log = folder / "host.log"
        self._process: subprocess.Popen[str] | None = None
        java.compile(_SOURCE, folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def tool(
        self, name: str, *args: str, text: str | None = None, timeout: float = 240
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's command line tools; arguments and answer are those of `Java.tool`.

        Raises:
            Unavailable: it did not answer in time, or took the whole Java down with it.
        """
        if name in _ALONE:
            return self._java.tool(name, *args, text=text, timeout=timeout)
        call = " ".join(_encode(part) for part in (TOOLS[name], text or "", *args))
        answer = self._ask(call, timeout)
        if not answer:
            self.close()
            raise Unavailable(
                f"{name} ended its Java, or did not answer within {timeout} s: see {self._log}"
            )
        status, said, errors = answer.split()
        return subprocess.CompletedProcess(
            [name, *args], int(status), _decode(said), _decode(errors)
        )

    def close(self) -> None:
        """End Java, and with it a tool that still runs."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _ask(self, call: str, timeout: float) -> str:
        process = self._process or self._start()
        self._process = process
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("the pipes to Java are not there")
        process.stdin.write(call + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], timeout)
        return process.stdout.readline() if ready else ""

    def _start(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, stdin=pipe, stdout=pipe, stderr=log, text=True)


def _encode(text: str) -> str:
    # The sign distinguishes an empty text from none.
    return "=" + base64.b64encode(text.encode()).decode()


def _decode(text: str) -> str:
    return base64.b64decode(text[1:]).decode()
