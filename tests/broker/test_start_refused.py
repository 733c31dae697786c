"""A start with invalid settings ends at once and reports why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from rookery.testing.backends import ProxyThread, ServerBackend
from rookery.testing.broker import BrokerProcess
from rookery.testing.etcd import EtcdCluster
from tests.cluster.etcdusers import WORDS

WRONG = "wrong-secret-of-mine"
# The probe of a store begins with four requests that race for one key, and deletes that key.
MOST_REQUESTS = 5


def refusal(folder: Path, *flags: str) -> str:
    """Start a broker that must end by itself; return what it printed and logged."""
    broker = BrokerProcess(folder, flags=flags)
    with pytest.raises(RuntimeError, match="the broker ended with 1:"):
        broker.start()
    # A request that is tried again ends with the number of its attempts.
    assert "attempts" not in broker.words()
    assert WRONG not in broker.words()
    return broker.words()


@pytest.fixture
def proxy(backend: ServerBackend) -> Iterator[ProxyThread]:
    """Count the requests to the store."""
    with ProxyThread(backend.seaweed.port) as running:
        yield running


@pytest.mark.parametrize("has_etcd", [False, True])
def test_wrong_secret_of_the_store_ends_the_start(
    backend: ServerBackend, proxy: ProxyThread, tmp_path: Path, *, has_etcd: bool
) -> None:
    store = backend.store(tmp_path.name, proxy.endpoint, secret_access_key=WRONG)
    cluster = ["--cluster", backend.cluster(tmp_path.name)] if has_etcd else []

    words = refusal(tmp_path / "data", "--store", store, *cluster)

    assert "access is refused: check the access key, its secret" in words
    assert "403 SignatureDoesNotMatch" in words
    assert 0 < proxy.proxy.requests.total() <= MOST_REQUESTS


def test_missing_bucket_ends_the_start(moto: str, tmp_path: Path) -> None:
    store = f"s3://absent?endpoint={moto}&access_key_id=any&secret_access_key=any"

    words = refusal(tmp_path / "data", "--store", store)

    assert "store s3://absent/: cannot list" in words
    assert "there is no such bucket" in words


@pytest.mark.parametrize(
    ("password", "log", "cause"),
    [
        (WRONG, "allowed", "authentication failed, invalid user ID or password"),
        ("", "allowed", "user name is empty; add user and password_file to the URL"),
        (WORDS, "forbidden", "permission denied; grant the user readwrite"),
    ],
)
def test_wrong_credentials_of_etcd_end_the_start(
    guarded_etcd: EtcdCluster, tmp_path: Path, password: str, log: str, cause: str
) -> None:
    file = tmp_path / "password"
    file.write_text(password)
    user = {"user": "writer", "password_file": file} if password else {}
    cluster = guarded_etcd.url(log, timeout=3600, **user)

    words = refusal(tmp_path / "data", "--store", f"file://{tmp_path}/store", "--cluster", cluster)

    assert f"etcd at {guarded_etcd.members[0].endpoint} refuses: " in words
    assert cause in words


def test_plaintext_endpoint_in_the_environment_is_used(
    backend: ServerBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = urlsplit(backend.store(tmp_path.name))
    options = dict(parse_qsl(url.query))
    monkeypatch.setenv("AWS_ENDPOINT_URL", options["endpoint"])
    monkeypatch.setenv("AWS_REGION", options["region"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", options["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", options["secret_access_key"])
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    store = f"s3://{url.netloc}{url.path}"

    with BrokerProcess(tmp_path / "data", flags=["--store", store]) as broker:
        assert broker.ready["brokers"][0]["data"] == store
