"""The folders of programs that tests run."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path


class WorkFolder:
    """A given folder, or a new one that is removed after use."""

    def __init__(self, given: Path | None, prefix: str = "") -> None:
        """Make a folder whose name begins with the prefix, unless one is given."""
        self.path = given or Path(tempfile.mkdtemp(prefix=prefix))
        self._is_new = given is None

    def remove(self) -> None:
        """Remove it with its contents, unless it was given."""
        if self._is_new:
            shutil.rmtree(self.path)


def copy_folder(source: Path, target: Path) -> Path:
    """Copy a folder to one that does not exist yet, and leave holes where files have zeros.

    Kafka lays out index files of 10 MiB that are mostly empty.
    """
    command = ["cp", "-a", "--sparse=always", str(source), str(target)]
    subprocess.run(command, check=True)
    return target
