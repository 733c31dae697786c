"""The contract on a second S3 server, with other code and other answers."""

from __future__ import annotations

import secrets

import pytest

from rookery.errors import Unavailable
from rookery.store.open import open_store
from tests.contracts.store import StoreContract


async def test_missing_bucket_is_reported_by_every_call(moto: str) -> None:
    store = open_store(f"s3://absent?endpoint={moto}&access_key_id=any&secret_access_key=any")
    with pytest.raises(Unavailable, match="cannot create 'key': there is no such bucket"):
        await store.create("key", [b"x"])
    with pytest.raises(Unavailable, match="cannot list '': there is no such bucket"):
        await store.list()
    with pytest.raises(Unavailable, match="no such bucket"):
        await store.replace("key", b"x", "1")
    with pytest.raises(Unavailable, match="no such bucket"):
        await store.read("key")


class TestMoto(StoreContract):
    # It compares and replaces in two steps, so of two racers both may win; no store to rely on.
    test_counter_by_replacement_loses_no_update = None  # type: ignore[assignment]
    test_one_of_several_concurrent_replacements_succeeds = None  # type: ignore[assignment]

    @pytest.fixture
    def url(self, moto: str) -> str:
        path = f"contract/{secrets.token_hex(8)}"
        return f"s3://{path}?endpoint={moto}&access_key_id=any&secret_access_key=any"
