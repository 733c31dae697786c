"""The contract on a second server that speaks S3, with other code and other answers."""

from __future__ import annotations

import secrets
import sysconfig
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from rookery.errors import Unavailable
from rookery.store.open import open_store
from rookery.testing.ports import HOST, free_port
from rookery.testing.process import LoggedProcess
from tests.contracts.store import StoreContract


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a server with a bucket called `contract`."""
    port = free_port()
    program = Path(sysconfig.get_path("scripts")) / "moto_server"
    log = tmp_path_factory.mktemp("moto") / "log"
    process = LoggedProcess([str(program), "-H", HOST, "-p", str(port)], log)
    try:
        while not _makes_bucket(port):
            assert process.ended(0.05) is None, log.read_text()
        yield f"http://{HOST}:{port}"
    finally:
        process.kill()


def _makes_bucket(port: int) -> bool:
    connection = HTTPConnection(HOST, port, timeout=30)
    try:
        connection.request("PUT", "/contract")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


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
