"""A store whose PUTs take 50 ms and whose other requests take 20: SeaweedFS or the stub."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from rookery.testing.seaweed import SeaweedServer

PUT_MS: Final = 50
GET_MS: Final = 20
_HERE: Final = Path(__file__).parent
# SeaweedFS has made it when it looked whether it can.
_BUCKET: Final = "ready"


class SlowStore:
    """Tells a store's URL, and what was asked of it."""

    def __init__(self, script: str, *arguments: str) -> None:
        """Start what stands before the store, or the stub, as a process."""
        delays = ["--put-ms", str(PUT_MS), "--get-ms", str(GET_MS)]
        self._process = subprocess.Popen(
            [sys.executable, str(_HERE / script), *arguments, *delays],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.endpoint: str = self._line()["endpoint"]
        self.server: SeaweedServer | None = None

    def url(self, name: str) -> str:
        """Return the URL of an unused part of the store."""
        path = f"{_BUCKET}/{name}"
        if self.server is not None:
            return self.server.url(path, self.endpoint)
        options = {
            "endpoint": self.endpoint, "region": "us-east-1",
            "access_key_id": "stub", "secret_access_key": "stub",
        }  # fmt: skip
        return f"s3://{path}?{urlencode(options, safe=':/')}"

    def requests(self) -> Counter[str]:
        """Return how many requests there were, by kind, of whatever process."""
        if self._process.stdin is None:
            raise RuntimeError("the store's process has no standard input")
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Counter(self._line())

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.kill()
        self._process.wait()

    def _line(self) -> dict[str, Any]:
        if self._process.stdout is None:
            raise RuntimeError("the store's process has no standard output")
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


@contextmanager
def slow_store(*, is_stub: bool) -> Iterator[SlowStore]:
    """Run a store for as long as the block lasts."""
    if is_stub:
        store = SlowStore("s3stub.py")
        try:
            yield store
        finally:
            store.close()
        return
    with SeaweedServer() as server:
        store = SlowStore("delay.py", str(server.port))
        store.server = server
        try:
            yield store
        finally:
            store.close()
