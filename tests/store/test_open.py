"""Opening a store by URL, and the traits of backends."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from rookery.errors import ConfigError
from rookery.store import backends
from rookery.store.open import is_url, store_traits
from rookery.store.port import StoreTraits


def test_every_backend_opens_stores_and_states_their_traits() -> None:
    names = [module.name for module in iter_modules(backends.__path__)]
    modules = [import_module(f"{backends.__name__}.{name}") for name in names]

    assert names
    for module in modules:
        assert callable(module.open)
        assert callable(module.traits)


@pytest.mark.parametrize("url", ["s3://bucket/prefix", "gs://bucket", "az://container?endpoint=x"])
def test_remote_servers_must_be_probed(url: str) -> None:
    assert store_traits(url) == StoreTraits(has_preconditions=False)
    assert not store_traits(url).is_on_this_host


@pytest.mark.parametrize("url", ["file:///my%20folder/x", "/my folder/x", "file:/my%20folder/x"])
def test_folder_is_local(url: str) -> None:
    traits = store_traits(url)

    assert traits == StoreTraits(has_preconditions=True, path=Path("/my folder/x"))
    assert traits.is_on_this_host


def test_a_relative_path_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert store_traits("x").path == tmp_path / "x"


@pytest.mark.parametrize("url", ["ftp://host/x", "file://host/x", "S3://bucket"])
def test_traits_of_a_url_that_names_no_store_are_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        store_traits(url)


@pytest.mark.parametrize(
    ("location", "answer"),
    [("s3://bucket", True), ("memory:x", True), ("/x/y", False), ("x", False)],
)
def test_a_location_is_a_url_or_a_path(location: str, answer: bool) -> None:
    assert is_url(location) is answer
