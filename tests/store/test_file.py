"""The store in a folder: the contract of all stores, and crashes."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rookery.errors import ConfigError, Unavailable
from rookery.store.backends.file import FileStore
from rookery.store.open import open_store
from rookery.store.port import StoredObject
from rookery.testing.clock import ManualClock
from tests.contracts.store import StoreContract


class TestFile(StoreContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}/objects%20here"


async def test_no_temporary_file_remains(tmp_path: Path) -> None:
    await FileStore(tmp_path).create("a/b", [b"x"])
    assert (tmp_path / "a" / "b").read_bytes() == b"x"
    assert list((tmp_path / "~new").iterdir()) == []


async def test_unfinished_file_is_not_listed_and_is_removed_later(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    left = tmp_path / "~new" / "0123"
    left.write_bytes(b"half")
    assert await store.list() == []
    now_ms = left.stat().st_mtime_ns // 1_000_000
    FileStore(tmp_path, ManualClock(now_ms + 1000))
    assert left.exists()
    FileStore(tmp_path, ManualClock(now_ms + 25 * 3600 * 1000))
    assert not left.exists()


async def test_a_key_below_an_object_is_unavailable(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    await store.create("a", [b"x"])
    with pytest.raises(Unavailable, match="a"):
        await store.create("a/b", [b"x"])
    assert await store.list() == [StoredObject("a", 1)]


async def test_failed_write_leaves_no_file(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python ignores the signal, so the write fails as on a full disk.
    assert signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(Unavailable, match="check the disk"):
            await store.create("big", [os.urandom(60_000)] * 3)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert await store.list() == []
    assert list((tmp_path / "~new").iterdir()) == []
    await store.create("big", [b"now it fits"])


def test_killed_creator_leaves_whole_objects_only(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from rookery.store.backends.file import FileStore\n"
        "async def main():\n"
        "    store = FileStore(Path(sys.argv[1]))\n"
        "    for n in range(10000):\n"
        "        await store.create(f'{sys.argv[2]}/{n}', [b'x' * 50_000] * 4)\n"
        "        print(n, flush=True)\n"
        "asyncio.run(main())\n"
    )
    for round_ in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", program, tmp_path, f"r{round_}"],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            for _ in range(3 + round_):
                process.stdout.readline()
            process.kill()
            said = 3 + round_ + len(process.stdout.readlines())
        files = list((tmp_path / f"r{round_}").iterdir())
        assert said <= len(files) <= said + 1
        assert {path.stat().st_size for path in files} == {200_000}


async def test_path_names_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for location in ("my objects", str(tmp_path / "my objects")):
        store = open_store(location)
        await store.create("a/b" if location[0] == "m" else "c", [b"x"])
        await store.close()
    assert (tmp_path / "my objects" / "a" / "b").read_bytes() == b"x"


async def test_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(Unavailable, match="file"):
        open_store(f"file://{tmp_path}/file/store")


@pytest.mark.parametrize("url", ["", "file:", "file://host/x", "file:///x?y", "s9:x"])
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="store"):
        open_store(url)
