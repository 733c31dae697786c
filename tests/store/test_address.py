"""URLs of stores in buckets."""

from __future__ import annotations

import pytest

from rookery.errors import ConfigError, Unavailable
from rookery.store.address import DEADLINE_MS, Patience, parse
from rookery.store.objectstore import ObjectStore
from rookery.store.open import open_store

KEY = "+//+c2VjcmV0cw=="


def test_url_is_parsed_into_bucket_prefix_and_options() -> None:
    address = parse(f"s3://bucket/a/b%2Ec/?region=eu-west-1&token={KEY}&timeout_ms=5000")
    assert address.name == "s3://bucket/a/b.c"
    assert (address.bucket, address.prefix) == ("bucket", "a/b.c")
    assert address.options == {"region": "eu-west-1", "token": KEY}
    assert address.patience == Patience(5000, DEADLINE_MS)


@pytest.mark.parametrize(
    "url",
    [
        "s3:",
        "s3://",
        "s3:///prefix",
        "s3:bucket",
        "s3://user@bucket",
        "s3://bucket:80/x",
        "s3://bucket/a//b",
        "s3://bucket/../b",
        "s3://bucket/a b",
        "s3://bucket#x",
        "s3://bucket?region=a&region=b",
        "s3://bucket?timeout_ms=0",
        "s3://bucket?timeout_ms=1s",
        "s3://bucket?timeout_ms=²",
        "s3://bucket?deadline_ms=99999999999999999999",
        "s3://bucket?no_such_option=1",
        "gs://bucket?no_such_option=1",
        "az://container?no_such_option=1&account_name=a",
        "az://container",
    ],
)
def test_unusable_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="store"):
        open_store(url)


@pytest.mark.parametrize("scheme", ["s3", "gs", "az", "s4", "S3"])
def test_secrets_are_not_shown(scheme: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_store(f"{scheme}://bucket/b?no_such_option=hush-{KEY}&timeout_ms=1")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "s3://bucket/prefix?region=us-east-1&virtual_hosted_style_request=true",
        "gs://bucket/prefix?bearer_token=x",
        f"az://container/prefix?account_name=name&account_key={KEY}",
    ],
)
def test_each_cloud_has_its_own_client(url: str) -> None:
    assert isinstance(open_store(url), ObjectStore)


async def test_invalid_endpoint_in_the_environment_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:9000")
    store = open_store("s3://bucket?region=r&access_key_id=a&secret_access_key=b")
    with pytest.raises(Unavailable, match="endpoint cannot be used: write http://host:port"):
        await store.list("a/")


def test_invalid_endpoint_is_refused() -> None:
    with pytest.raises(ConfigError, match="endpoint 'localhost:9000' is not a URL"):
        open_store("s3://bucket?region=r&endpoint=localhost:9000")
