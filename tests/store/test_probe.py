"""The probe for the guarantees that a store must give."""

from __future__ import annotations

import secrets
from builtins import list as List  # noqa: N812 (the port has a method of that name)
from collections.abc import Sequence
from pathlib import Path

import pytest

from rookery.errors import ConfigError, Unavailable
from rookery.store.backends.memory import MemoryStore
from rookery.store.open import open_store
from rookery.store.port import Buffer, StoredObject
from rookery.store.probe import probe
from rookery.testing.seaweed import SeaweedServer


async def test_valid_stores_pass_the_probe_and_nothing_remains(
    tmp_path: Path, seaweed: SeaweedServer
) -> None:
    urls = [f"file://{tmp_path}", "memory:", seaweed.url(f"probed/{secrets.token_hex(8)}")]
    for url in urls:
        store = open_store(url)
        await probe(store, url)
        assert await store.list() == []


class Overwriting(MemoryStore):
    """Ignores If-None-Match, as some servers do."""

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        self._objects[key] = b"".join(parts)


class Replacing(MemoryStore):
    """Ignores If-Match."""

    async def replace(self, key: str, data: bytes, version: str) -> str:
        self._objects[key] = data
        return version


class Forgetful(MemoryStore):
    """Lists late."""

    async def list(self, prefix: str = "") -> List[StoredObject]:
        return []


class Stale(MemoryStore):
    """Reads what was there before."""

    async def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        return b"stale"


@pytest.mark.parametrize(
    ("store", "words"),
    [
        (Overwriting({}), "If-None-Match is ignored"),
        (Replacing({}), "If-Match is ignored"),
        (Forgetful({}), "does not list"),
        (Stale({}), "does not return"),
    ],
)
async def test_store_that_violates_a_guarantee_is_refused(store: MemoryStore, words: str) -> None:
    with pytest.raises(ConfigError, match=f"store s3://bucket: .*{words}"):
        await probe(store, "s3://bucket")
    assert store._objects == {}


async def test_unreachable_store_is_unavailable() -> None:
    url = (
        "s3://bucket?endpoint=http://127.0.0.1:1&access_key_id=a&secret_access_key=b&deadline_ms=1"
    )
    with pytest.raises(Unavailable, match="refused"):
        await probe(open_store(url), "s3://bucket")
