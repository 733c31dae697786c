"""Locations hide their secrets, and still behave as text."""

from __future__ import annotations

import pickle
from urllib.parse import urlsplit

import pytest

from rookery.model.location import Location, Secret, find_secret, hide_options


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://b/x?region=r&secret_access_key=geheim", "s3://b/x?region=r&secret_access_key=***"),
        ("s3://b/x?Session_Token=geheim&region=r", "s3://b/x?Session_Token=***&region=r"),
        ("az://box/x?account_key=ge/he+im==", "az://box/x?account_key=***"),
        ("az://box/x?sv=2&sig=geheim", "az://box/x?sv=2&sig=***"),
        ("etcd://me:geheim@host:2379/name", "etcd://me:***@host:2379/name"),
        ("postgresql://me:ge@heim@host/db", "postgresql://me:***@host/db"),
        ("store:s3://b/x?secret_access_key=geheim", "store:s3://b/x?secret_access_key=***"),
    ],
)
def test_secrets_are_hidden(url: str, shown: str) -> None:
    location = Location(url)
    assert find_secret(url)
    assert (str(location), f"{location}", "%s" % location) == (shown,) * 3  # noqa: UP031
    assert repr(location) == repr(shown)
    assert repr([location]) == repr([shown])
    assert location.reveal() == url
    assert type(location.reveal()) is str


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/srv/lake/secret_key=1",
        "file:///srv/token",
        "s3://b/x?region=r&access_key_id=me&endpoint=http://h:1",
        "gs://b/x?application_credentials=/etc/key.json",
        "etcd://me@host:2379/name",
        "host:2379",
    ],
)
def test_text_without_secrets_is_shown_unchanged(text: str) -> None:
    assert not find_secret(text)
    assert str(Location(text)) == f"{Location(text)}" == text


def test_location_is_text_and_can_be_pickled() -> None:
    url = "s3://b/x?secret_access_key=geheim"
    location = Location(url)
    assert location == Location(location) == url
    assert hash(location) == hash(url)
    assert urlsplit(location).netloc == "b"
    again = pickle.loads(pickle.dumps(location))
    assert type(again) is Location
    assert again.reveal() == url


def test_options_hide_by_name_and_by_address() -> None:
    options = {"token": "geheim", "catalog": "postgresql://me:geheim@h/d", "partitions": "2"}
    hidden = hide_options(options)
    assert hidden == options
    assert "geheim" not in repr(hidden)
    assert "'partitions': '2'" in repr(hidden)
    assert isinstance(hidden["token"], Secret)
