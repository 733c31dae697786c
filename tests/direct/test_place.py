"""Cluster addresses: by URLs, and by a name in the configuration."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from rookery.direct.place import ClusterAddress, check_host, host_mark
from rookery.errors import ConfigError
from rookery.log.origin import LogLocation

SECRET = "s3://bucket/logs?secret_access_key=geheim"  # noqa: S105 (a test's)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that this process's configuration is in."""
    path = tmp_path / "rookery.toml"
    monkeypatch.setenv("ROOKERY_CONFIG", str(path))
    return path


def test_address_options_are_read_and_others_ignored() -> None:
    place = ClusterAddress.of({"store": "file:///x", "namespace": "n", "subscribe": "t"})
    assert place == ClusterAddress(store="file:///x", namespace="n")
    origin = place.origin()
    assert origin.cluster_url == "store:file:///x?namespace=n"


def test_a_store_can_be_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    url = (tmp_path / "my store").as_uri()
    for path in (str(tmp_path / "my store"), "my store"):
        place = ClusterAddress.of({"store": path})
        assert place == ClusterAddress(store=url)
        assert place.origin().cluster_url == f"store:{url}?namespace=default"
        assert LogLocation(store=path).store_url == url


def test_configured_name_gives_the_location_of_the_log(config: Path) -> None:
    config.write_text(f'[clusters.prod-eu]\nstore = "{SECRET}"\ncluster = "etcd://h:2379"\n')
    origin = ClusterAddress(cluster="prod-eu").origin()
    assert (origin.store, origin.cluster) == (SECRET, "etcd://h:2379")


def test_the_environment_can_name_a_cluster(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text("")
    monkeypatch.setenv("ROOKERY_CLUSTERS_PROD_STORE", SECRET)
    assert ClusterAddress(cluster="prod").origin().store == SECRET


def test_secrets_are_neither_pickled_nor_shown(config: Path) -> None:
    config.write_text(f'[clusters.prod]\nstore = "{SECRET}"\n')
    place = ClusterAddress(cluster="prod")
    assert b"geheim" not in pickle.dumps(place)
    assert "geheim" not in repr(ClusterAddress(store=SECRET)) + repr(
        ClusterAddress(store=SECRET).origin()
    )


def test_a_name_that_is_not_configured_is_refused(config: Path) -> None:
    config.write_text('[clusters.prod]\nstore = "file:///x"\n')
    with pytest.raises(ConfigError, match=r"cluster 'prot' is not configured.*did you mean prod"):
        ClusterAddress(cluster="prot").origin()


def test_an_unknown_key_of_a_cluster_is_refused_with_its_line(config: Path) -> None:
    config.write_text('[clusters.prod]\nstore = "file:///x"\nstores = "y"\n')
    with pytest.raises(ConfigError, match=r"clusters.prod.stores: unknown.*rookery.toml:3"):
        ClusterAddress(cluster="prod").origin()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"store": "file:///x", "data": "/y"},
        {"cluster": "prod", "store": "file:///x"},
        {"data": "/x", "cluster": "etcd://h:2379"},
    ],
)
def test_no_address_and_two_addresses_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        ClusterAddress.of(options).origin()


def test_local_folder_is_read_only_on_its_own_host(tmp_path: Path) -> None:
    (tmp_path / "cluster.sqlite").touch()
    place = ClusterAddress(data=str(tmp_path))
    check_host(place, host_mark(place))
    with pytest.raises(ConfigError, match="a file of the driver's host"):
        check_host(place, "another-boot/1/2")
    assert host_mark(ClusterAddress(store="file:///x")) == ""
