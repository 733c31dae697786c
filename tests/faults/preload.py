"""A broker whose calls to the disk fail while a test says so (see shim.c)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rookery.testing.broker import BrokerProcess

SOURCE = Path(__file__).with_name("shim.c")


def compiled(folder: Path) -> Path:
    """Compile the shim."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler named cc")
    library = folder / "shim.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-o", str(library), str(SOURCE)]
    subprocess.run([*command, "-ldl"], check=True)
    return library


class FailingBroker(BrokerProcess):
    """A broker with the shim before the C library."""

    def __init__(self, folder: Path, shim: Path) -> None:
        super().__init__(folder)
        self._shim = shim
        self.faults = folder.with_name(folder.name + "-faults")
        self.faults.mkdir()

    def command(self) -> list[str]:
        """Return the command line."""
        settings = (f"LD_PRELOAD={self._shim}", f"ROOKERY_TEST_FAULTS={self.faults}")
        return ["/usr/bin/env", *settings, *super().command()]

    @contextmanager
    def failing(self, fault: str) -> Iterator[None]:
        """Let one kind of call fail (see shim.c for their names)."""
        mark = self.faults / fault
        mark.touch()
        try:
            yield
        finally:
            mark.unlink()
