"""URLs of the etcd log."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.cluster.etcd.address import EtcdAddress, parse
from rookery.cluster.open import open_log
from rookery.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("etcd://localhost", EtcdAddress(("localhost:2379",))),
        ("etcd://localhost/", EtcdAddress(("localhost:2379",))),
        ("etcd://a:1,b,10.0.0.3:65535/x", EtcdAddress(("a:1", "b:2379", "10.0.0.3:65535"), "x")),
        ("etcd://[::1]:4000/team/log-1.a", EtcdAddress(("[::1]:4000",), "team/log-1.a")),
        ("etcd://a?timeout=2.5", EtcdAddress(("a:2379",), timeout_seconds=2.5)),
        ("etcd://a?tls=on", EtcdAddress(("a:2379",), tls=True)),
    ],
)
def test_url_names_the_location_of_the_log(url: str, address: EtcdAddress) -> None:
    assert parse(url) == address


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("etcd:", "not host:port"),
        ("etcd:///log", "not host:port"),
        ("etcd://a,,b/log", "not host:port"),
        ("etcd://a:0/log", "not host:port"),
        ("etcd://a:65536/log", "not host:port"),
        ("etcd://user:secret@a/log", "not host:port"),
        ("etcd://a/b//c", "cannot be a log's name"),
        ("etcd://a/b%00c", "cannot be a log's name"),
        ("etcd://a/entry", "cannot be a log's name"),
        ("etcd://a/b/writer/c", "cannot be a log's name"),
        ("etcd://a/log#part", "cannot be a log's name"),
        ("etcd://a?colour=red", "no option 'colour'"),
        ("etcd://a?timeout", "not a list of options"),
        ("etcd://a?tls=on&tls=off", "twice"),
        ("etcd://a?timeout=0", "between 0.1 and 3600"),
        ("etcd://a?timeout=nan", "between 0.1 and 3600"),
        ("etcd://a?timeout=soon", "between 0.1 and 3600"),
        ("etcd://a?tls=yes", "choose on or off"),
        ("etcd://a?user=me", "user and password_file belong together"),
        ("etcd://a?password_file=/p", "user and password_file belong together"),
        ("etcd://a?cert=/c&tls=on", "cert and key belong together"),
        ("etcd://a?cert=/c&key=/k", "add ca=… or tls=on"),
        ("etcd://a?ca=/nowhere/ca.pem", "ca: No such file or directory: /nowhere/ca.pem"),
    ],
)
async def test_unusable_url_is_refused(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        open_log(url)


def test_files_named_in_the_url_are_read(tmp_path: Path) -> None:
    for name in ("password", "ca", "cert", "key"):
        (tmp_path / name).write_text(f"the {name}\n")
    query = f"user=me&password_file={tmp_path}/password&ca={tmp_path}/ca"
    address = parse(f"etcd://a/log?{query}&cert={tmp_path}/cert&key={tmp_path}/key")
    assert (address.user, address.password, address.tls) == ("me", "the password", True)
    assert (address.ca, address.cert, address.key) == (b"the ca\n", b"the cert\n", b"the key\n")
    assert "the password" not in repr(address)
    assert "the key" not in repr(address)
