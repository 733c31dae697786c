"""Opening a cluster log by URL, and the traits of backends."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import cast

import pytest

from rookery.cluster import backends
from rookery.cluster.open import log_traits, open_log
from rookery.cluster.port import ClusterLogTraits, Durability
from rookery.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", "not a URL"),
        ("cluster.sqlite", "not a URL"),
        ("Memory:x", "not a URL"),
        ("../memory:x", "not a URL"),
        ("zookeeper:x", "no backend called 'zookeeper'"),
        ("sqlite:", "write sqlite:///"),
        ("sqlite://host/path", "write sqlite:///"),
        ("sqlite:///path?mode=ro", "write sqlite:///"),
        ("sqlite:///a%00b", "write sqlite:///"),
    ],
)
async def test_url_that_names_no_log_is_refused(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        open_log(url)


async def test_an_unknown_durability_is_refused() -> None:
    with pytest.raises(ConfigError, match="durability 'hope'"):
        open_log("memory:", durability=cast("Durability", "hope"))


def test_every_backend_opens_logs_and_states_their_traits() -> None:
    names = [module.name for module in iter_modules(backends.__path__)]
    modules = [import_module(f"{backends.__name__}.{name}") for name in names]

    assert names
    for module in modules:
        assert callable(module.open)
        assert callable(module.traits)


@pytest.mark.parametrize(
    ("url", "traits"),
    [
        ("memory:x", ClusterLogTraits(is_as_durable_as_store=True)),
        ("etcd://127.0.0.1:2379/log", ClusterLogTraits(is_as_durable_as_store=False)),
        ("etcd://host:2379/log?tls=on", ClusterLogTraits(is_as_durable_as_store=False)),
        (
            "etcd://localhost:2379,host:2379/log",
            ClusterLogTraits(is_as_durable_as_store=False, plaintext_members=("host:2379",)),
        ),
        (
            "sqlite:///my%20data/cluster.sqlite",
            ClusterLogTraits(is_as_durable_as_store=True, path=Path("/my data/cluster.sqlite")),
        ),
        (
            "store:s3://bucket/logs",
            ClusterLogTraits(
                is_as_durable_as_store=True, max_replay_entries=1_000, checks_store=True
            ),
        ),
    ],
)
def test_traits_are_known_before_a_log_is_opened(url: str, traits: ClusterLogTraits) -> None:
    assert log_traits(url) == traits
    assert traits.is_on_this_host == url.startswith("sqlite:")


def test_traits_of_a_url_that_names_no_log_are_refused() -> None:
    with pytest.raises(ConfigError, match="no backend called 'zookeeper'"):
        log_traits("zookeeper:x")
