"""The etcd log over TLS and with logins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rookery.cluster.open import open_log
from rookery.errors import Unavailable
from rookery.testing.certificates import Certificates
from rookery.testing.etcd import EtcdCluster, EtcdSettings
from rookery.testing.ports import HOST
from tests.cluster.etcdusers import WORDS
from tests.contracts.cluster_log import read_all


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates.make(tmp_path_factory.mktemp("tls"), HOST)


@pytest.fixture(scope="module")
def encrypted(own_processes: None, certificates: Certificates) -> Iterator[EtcdCluster]:
    settings = EtcdSettings(certificates=certificates, client_certificates=True)
    with EtcdCluster(settings=settings) as cluster:
        yield cluster


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(f"{WORDS}\n")
    return path


@pytest.fixture
def wrong_password(tmp_path: Path) -> Path:
    path = tmp_path / "wrong"
    path.write_text("wrong horse\n")
    return path


async def test_log_works_over_tls(encrypted: EtcdCluster, certificates: Certificates) -> None:
    files = certificates
    log = open_log(encrypted.url(ca=files.ca, cert=files.client, key=files.client))
    assert await log.append(b"x" * 100_000) == 1
    assert await log.wait(0) == 1
    assert [len(e.data) for e in await read_all(log)] == [100_000]
    await log.close()


async def test_untrusted_server_is_refused(
    encrypted: EtcdCluster, certificates: Certificates, tmp_path: Path
) -> None:
    files, others = certificates, Certificates.make(tmp_path, HOST)
    port = urlsplit(encrypted.url()).port
    for query in (
        f"ca={others.ca}&cert={files.client}&key={files.client}",
        f"ca={files.ca}",
        f"ca={files.ca}&cert={others.client}&key={others.client}",
        "tls=off",
    ):
        log = open_log(f"etcd://{HOST}:{port}/log?timeout=0.3&{query}")
        with pytest.raises(Unavailable):
            await log.append(b"x")
        await log.close()


async def test_user_with_a_password_is_accepted(guarded_etcd: EtcdCluster, password: Path) -> None:
    log = open_log(guarded_etcd.url("allowed", user="writer", password_file=password))
    assert await log.append(b"x") == 1
    assert await log.wait(0) == 1
    await log.append(b"y")
    await log.trim(2)
    assert (await log.floor(), await log.head()) == (1, 2)
    await log.close()


async def test_expired_token_is_renewed(guarded_etcd: EtcdCluster, password: Path) -> None:
    log = open_log(guarded_etcd.url("allowed", user="writer", password_file=password))
    last = await log.append(b"x")
    # Simple tokens live in the member's memory.
    guarded_etcd.members[0].restart()
    assert await log.append(b"y") == last + 1
    assert await log.wait(last) == last + 1
    await log.close()


async def test_missing_permission_is_reported(guarded_etcd: EtcdCluster, password: Path) -> None:
    log = open_log(guarded_etcd.url("forbidden", user="writer", password_file=password))
    for call in (log.append(b"x"), log.read(0), log.head(), log.wait(0)):
        with pytest.raises(Unavailable, match="permission denied; grant the user readwrite"):
            await call
    await log.close()


async def test_missing_or_wrong_password_is_reported(
    guarded_etcd: EtcdCluster, wrong_password: Path
) -> None:
    log = open_log(guarded_etcd.url("allowed"))
    with pytest.raises(Unavailable, match="add user and password_file to the URL"):
        await log.head()
    await log.close()
    log = open_log(guarded_etcd.url("allowed", user="writer", password_file=wrong_password))
    with pytest.raises(Unavailable, match="authentication failed"):
        await log.head()
    await log.close()


@pytest.mark.parametrize(
    ("url", "is_warned"),
    [
        ("etcd://10.0.0.5:2379", True),
        ("etcd://127.0.0.1:2379,kafka-1:2379", True),
        ("etcd://10.0.0.5:2379?tls=on", False),
        ("etcd://127.0.0.1:2379", False),
    ],
)
async def test_a_connection_beyond_loopback_without_tls_is_warned_about(
    url: str, is_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await open_log(url).close()

    assert ("not encrypted" in caplog.text) is is_warned
