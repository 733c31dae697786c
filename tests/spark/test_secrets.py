"""Secrets are refused in options, and not shown when they are."""

from __future__ import annotations

import pytest

from rookery.errors import ConfigError
from rookery.spark.source import SourceOptions


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("store", "s3://bucket/x?region=r&secret_access_key=geheim"),
        ("STORE", "s3://bucket/x?Secret_Access_Key=geheim"),
        ("store", "s3://bucket/x?session_token=geheim"),
        ("store", "az://box/x?account_key=geheim"),
        ("cluster", "etcd://me:geheim@host:2379/name"),
        ("cluster", "store:s3://bucket/x?secret_access_key=geheim"),
        ("gapsTo", "s3://bucket/gaps?secret_access_key=geheim"),
    ],
)
def test_address_with_a_secret_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=r"has a secret in it.*cluster=NAME") as refused:
        SourceOptions({"subscribe": "t", name: value})
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    "store",
    [
        "s3://bucket/x?region=r&access_key_id=me&endpoint=http://h:1",
        "s3://bucket/x?web_identity_token_file=/run/token",
        "file:///srv/secret/key",
        "gs://bucket/x?application_credentials=/etc/key.json",
    ],
)
def test_address_without_a_secret_is_accepted(store: str) -> None:
    options = SourceOptions(
        {"subscribe": "t", "store": store, "cluster": "etcd://me@host:2379/name"}
    )
    assert "value" in options.schema().fieldNames()
