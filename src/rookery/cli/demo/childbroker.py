"""A broker as a child process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rookery.cli.demo.childserver import ChildServer, free_address

# What `rookery broker --json` prints when it serves.
_READY: Final = b'{"bootstrap"'


class ChildBroker(ChildServer):
    """One broker and its process."""

    def __init__(self, folder: Path, durability: str, flags: Sequence[str] = ()) -> None:
        """Choose a port; start nothing.

        Args:
            folder: for the data and the broker's log file.
            durability: as the broker's setting of that name.
            flags: further flags of `rookery broker`.
        """
        self.bootstrap = free_address()
        own = [
            "--data", str(folder / "data"),
            "--listen", self.bootstrap,
            "--http-listen", "",
            "--durability", durability,
        ]  # fmt: skip
        super().__init__("broker", _READY, folder, [*own, *flags])
