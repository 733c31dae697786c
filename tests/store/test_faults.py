"""An S3 store whose answers are late, wrong or lost."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from urllib.parse import parse_qsl, urlsplit

import pytest

from rookery.errors import Conflict, Unavailable
from rookery.store.meter import RETRIES
from rookery.store.open import open_store
from rookery.store.port import NotFound, Store
from rookery.store.probe import probe
from rookery.testing.s3proxy import Delays, Rule, S3Fault, S3Proxy
from rookery.testing.seaweed import SeaweedServer

DATA = os.urandom(99_999) + b"!"

WRONG = {"secret_access_key": "wrong-secret-of-mine"}


@pytest.fixture
async def proxy(seaweed: SeaweedServer) -> AsyncIterator[S3Proxy]:
    async with S3Proxy(seaweed.port) as running:
        yield running


@pytest.fixture
def path() -> str:
    return f"faults/{secrets.token_hex(8)}"


@pytest.fixture
def store(seaweed: SeaweedServer, proxy: S3Proxy, path: str) -> Store:
    return open_store(seaweed.url(path, proxy.endpoint, timeout_ms="2000", deadline_ms="8000"))


@pytest.fixture
def other(seaweed: SeaweedServer, path: str) -> Store:
    """Return the same store, past the proxy."""
    return open_store(seaweed.url(path))


@pytest.mark.parametrize("fault", [S3Fault.ERROR, S3Fault.DROP, S3Fault.SWALLOW])
async def test_failed_create_is_retried(proxy: S3Proxy, store: Store, fault: S3Fault) -> None:
    proxy.add(Rule(fault, "PUT", times=2))
    before = RETRIES.labels("create").value
    await store.create("key", [DATA[:5], DATA[5:]])
    assert await store.read("key") == DATA
    assert proxy.faults[fault] == 2
    assert RETRIES.labels("create").value == before + 2


@pytest.mark.parametrize("status", [500, 502, 503, 504, 429])
async def test_throttling_answers_are_retried(proxy: S3Proxy, store: Store, status: int) -> None:
    proxy.add(Rule(S3Fault.ERROR, times=1, status=status))
    await store.create("key", [DATA])
    proxy.add(Rule(S3Fault.ERROR, times=1, status=status))
    assert await store.read("key") == DATA
    assert proxy.faults[S3Fault.ERROR] == 2


async def test_create_refused_by_a_concurrent_request_is_retried(
    proxy: S3Proxy, store: Store
) -> None:
    proxy.add(Rule(S3Fault.ERROR, "PUT", times=1, status=409))

    await store.create("key", [DATA])

    assert await store.read("key") == DATA
    assert proxy.requests["PUT"] == 2


async def test_number_in_a_key_is_not_taken_for_a_status(proxy: S3Proxy, store: Store) -> None:
    proxy.add(Rule(S3Fault.ERROR, "PUT", times=1, status=412))

    with pytest.raises(Conflict):
        await store.create("0409", [DATA])


async def test_completed_create_is_not_repeated(proxy: S3Proxy, store: Store, other: Store) -> None:
    proxy.add(Rule(S3Fault.SWALLOW, "PUT", times=1))
    await store.create("key", [DATA])
    assert proxy.requests["PUT"] == 2
    assert await other.read("key") == DATA
    with pytest.raises(Conflict):
        await store.create("key", [DATA])


async def test_empty_object_with_a_lost_answer_is_recognised(proxy: S3Proxy, store: Store) -> None:
    proxy.add(Rule(S3Fault.SWALLOW, "PUT", times=1))
    await store.create("key", [])
    assert await store.size("key") == 0


async def test_large_object_with_a_lost_answer_is_compared(
    proxy: S3Proxy, store: Store, other: Store
) -> None:
    parts = [os.urandom(9 << 20), b"", os.urandom(1 << 20)]
    proxy.add(Rule(S3Fault.SWALLOW, "PUT", times=1))
    await store.create("key", parts)
    assert await other.read("key") == b"".join(parts)


@pytest.mark.parametrize(
    "theirs",
    [
        pytest.param(DATA[:-1] + b"?", id="other byte"),
        pytest.param(DATA[:-1], id="shorter"),
        pytest.param(DATA + b"?", id="longer"),
        pytest.param(b"", id="empty"),
    ],
)
async def test_object_of_another_writer_is_a_conflict(
    proxy: S3Proxy, store: Store, other: Store, theirs: bytes
) -> None:
    await other.create("key", [theirs])
    proxy.add(Rule(S3Fault.DROP, "PUT", times=1))
    with pytest.raises(Conflict, match="'key' exists"):
        await store.create("key", [DATA])
    assert await other.read("key") == theirs


async def test_delayed_answer_is_not_awaited(
    proxy: S3Proxy, seaweed: SeaweedServer, path: str
) -> None:
    store = open_store(seaweed.url(path, proxy.endpoint, timeout_ms="300", deadline_ms="8000"))
    proxy.add(Rule(S3Fault.DELAY, "PUT", times=1, delay_ms=60_000))
    await store.create("key", [DATA])
    proxy.add(Rule(S3Fault.DELAY, "GET", times=1, delay_ms=60_000))
    assert await store.read("key") == DATA
    assert proxy.faults[S3Fault.DELAY] == 2


@pytest.mark.usefixtures("own_victim")
async def test_paused_server_is_unavailable_until_it_resumes(path: str) -> None:
    with SeaweedServer() as server:
        store = open_store(server.url(path, timeout_ms="300", deadline_ms="500"))
        await store.create("before", [DATA])
        server.pause()
        with pytest.raises(Unavailable, match=r"'during'.*no answer in time"):
            await store.create("during", [DATA])
        server.resume()
        patient = open_store(server.url(path))
        assert await patient.read("before") == DATA
        server.kill()
        with pytest.raises(Unavailable, match=r"cannot read 'before': \d+ attempts.*refused"):
            await store.read("before")
        server.start()
        assert await patient.read("before") == DATA


async def test_deadline_ends_the_call_with_the_error_of_the_store(
    proxy: S3Proxy, seaweed: SeaweedServer, path: str
) -> None:
    store = open_store(seaweed.url(path, proxy.endpoint, deadline_ms="400"))
    proxy.add(Rule(S3Fault.ERROR))
    calls = {
        "create": store.create("a/b", [DATA]),
        "read": store.read("a/b"),
        "size": store.size("a/b"),
        "replace": store.replace("a/b", DATA, "1"),
        "delete": store.delete("a/b"),
    }
    for kind, call in calls.items():
        with pytest.raises(Unavailable, match=f"{path}: cannot {kind} 'a/b': .* attempts.*503"):
            await call
    with pytest.raises(Unavailable, match=r"cannot list 'a/': .* attempts"):
        await store.list("a/")
    with pytest.raises(Unavailable, match="cannot read 'floor'"):
        await store.read_version("floor")


async def test_replacement_with_a_lost_answer_is_recognised(
    proxy: S3Proxy, store: Store, other: Store
) -> None:
    await other.create("floor", [b"1"])
    _, first = await other.read_version("floor") or (b"", "")
    proxy.add(Rule(S3Fault.SWALLOW, "PUT", times=1))
    second = await store.replace("floor", b"2", first)
    assert await other.read_version("floor") == (b"2", second)


async def test_replacement_with_an_unknown_outcome_is_not_a_conflict(
    proxy: S3Proxy, store: Store, other: Store
) -> None:
    await other.create("floor", [b"1"])
    _, first = await other.read_version("floor") or (b"", "")
    await other.replace("floor", b"3", first)
    proxy.add(Rule(S3Fault.DROP, "PUT", times=1))
    with pytest.raises(Unavailable, match="not known whether 'floor' was replaced"):
        await store.replace("floor", b"2", first)
    with pytest.raises(Conflict):
        await store.replace("floor", b"2", first)


async def test_wrong_credentials_are_reported_immediately(
    seaweed: SeaweedServer, path: str
) -> None:
    store = open_store(seaweed.url(path, **WRONG))
    with pytest.raises(Unavailable, match="access is refused") as caught:
        await store.create("key", [DATA])
    assert "wrong-secret" not in str(caught.value)


async def test_wrong_credentials_end_a_list_at_its_first_attempt(
    seaweed: SeaweedServer, path: str
) -> None:
    before = RETRIES.labels("list").value
    with pytest.raises(Unavailable, match=r"access is refused.*403 SignatureDoesNotMatch"):
        await open_store(seaweed.url(path, **WRONG)).list("a/")
    assert RETRIES.labels("list").value == before


async def test_wrong_credentials_are_reported_by_the_probe(
    seaweed: SeaweedServer, path: str
) -> None:
    with pytest.raises(Unavailable, match=r"cannot create .*access is refused"):
        await probe(open_store(seaweed.url(path, **WRONG)), "s3://b")


async def test_endpoint_without_tls_is_reported_immediately(
    seaweed: SeaweedServer, path: str
) -> None:
    store = open_store(seaweed.url(path, seaweed.endpoint.replace("http:", "https:")))
    with pytest.raises(Unavailable, match="does not speak TLS: write http"):
        await store.list("a/")


@pytest.mark.parametrize("allowed", ["true", "false", None])
async def test_scheme_of_the_endpoint_in_the_environment_decides(
    seaweed: SeaweedServer, path: str, monkeypatch: pytest.MonkeyPatch, allowed: str | None
) -> None:
    options = dict(parse_qsl(urlsplit(seaweed.url(path)).query))
    monkeypatch.setenv("AWS_ENDPOINT_URL", options["endpoint"])
    monkeypatch.setenv("AWS_REGION", options["region"])
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", options["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", options["secret_access_key"])
    monkeypatch.delenv("AWS_ALLOW_HTTP", raising=False)
    if allowed is not None:
        monkeypatch.setenv("AWS_ALLOW_HTTP", allowed)
    store = open_store(f"s3://{path}")
    await store.create("key", [DATA])
    assert await store.read("key") == DATA


async def test_missing_bucket_is_not_a_missing_object(seaweed: SeaweedServer) -> None:
    store = open_store(seaweed.url(f"absent-{secrets.token_hex(8)}"))
    with pytest.raises(Unavailable, match="no such bucket"):
        await store.read("key")
    with pytest.raises(Unavailable, match="no such bucket"):
        await store.read_version("key")


@pytest.mark.parametrize("seed", range(3))
async def test_any_mixture_of_faults_leaves_correct_objects(
    seaweed: SeaweedServer, path: str, seed: int
) -> None:
    other = open_store(seaweed.url(path))
    async with S3Proxy(seaweed.port, seed=seed) as proxy:
        store = open_store(seaweed.url(path, proxy.endpoint))
        for fault in (S3Fault.ERROR, S3Fault.DROP, S3Fault.SWALLOW):
            proxy.add(Rule(fault, rate=0.08))

        async def work(number: int) -> None:
            key, data = f"{number}", b"%d" % number * 1000
            await store.create(key, [data])
            assert await store.read(key) == data
            with pytest.raises(Conflict):
                await store.create(key, [b"other"])
            if number % 2:
                await store.delete(key)
                with pytest.raises(NotFound):
                    await store.read(key)

        await asyncio.gather(*(work(number) for number in range(12)))
        assert sum(proxy.faults.values()) > 5
    keys = sorted(f"{number}" for number in range(0, 12, 2))
    assert [stored.key for stored in await other.list()] == keys


async def test_proxy_delays_and_counts_requests(seaweed: SeaweedServer, path: str) -> None:
    now = asyncio.get_running_loop().time
    async with S3Proxy(seaweed.port, delays=Delays(put_ms=150, get_ms=80)) as proxy:
        store = open_store(seaweed.url(path, proxy.endpoint))
        began = now()
        await store.create("key", [DATA])
        created = now()
        assert await store.read("key") == DATA
        assert created - began >= 0.15
        assert now() - created >= 0.08
        await store.list()
        assert (proxy.requests["PUT"], proxy.requests["GET"], proxy.requests["LIST"]) == (1, 1, 1)


async def test_object_created_during_a_read_is_whole_or_not_found(
    proxy: S3Proxy, store: Store, other: Store
) -> None:
    # A GET fails, and the object comes to be just when its size is asked for.
    proxy.add(Rule(S3Fault.ERROR, "GET", times=1))
    proxy.add(Rule(S3Fault.DELAY, "HEAD", times=1, delay_ms=500))
    reading = asyncio.create_task(store.read("key", 0, 2 * len(DATA)))
    while not proxy.requests["HEAD"]:  # noqa: ASYNC110 (the proxy only counts)
        await asyncio.sleep(0)
    await other.create("key", [DATA])
    try:
        assert await reading == DATA
    except NotFound:
        assert await store.read("key") == DATA
