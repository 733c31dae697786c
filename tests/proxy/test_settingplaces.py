"""Errors that are found after loading name the place of their setting; secrets are not shown."""

from __future__ import annotations

from pathlib import Path

from rookery.config.load import LoadedSettings, load
from rookery.config.show import print_config
from rookery.errors import ConfigError
from rookery.proxy.settings import ProxySettings

FILE = """
[proxy.clusters.one]
upstream = "kafka:9092"

[proxy.clusters.one.security]
certificate_file = "here.pem"

[proxy.clusters.one.upstream_security]
certificate_file = "there.pem"

[proxy.filter.closing]
type = "encryption"
options = {password = "open sesame", key = "abc", key_file = "keys", keys = [{secret = "x"}]}
"""


def loaded(folder: Path) -> LoadedSettings[ProxySettings]:
    file = folder / "proxy.toml"
    file.write_text(FILE)
    return load(ProxySettings, "proxy", files=[file], environ={})


def located(folder: Path, reason: str, name: str) -> str:
    return str(loaded(folder).locate(ConfigError(reason, name=name)))


def test_setting_of_a_table_has_its_line(tmp_path: Path) -> None:
    text = located(tmp_path, "is away", "clusters.one.upstream")

    assert text == f"proxy.clusters.one.upstream: is away ({tmp_path}/proxy.toml:3)"


def test_setting_that_the_reason_names_first_is_found(tmp_path: Path) -> None:
    text = located(tmp_path, "tls.certificate_file: cannot be read", "clusters.one")

    assert f"({tmp_path}/proxy.toml:6, {tmp_path}/proxy.toml:9)" in text


def test_error_about_no_given_setting_stays(tmp_path: Path) -> None:
    assert located(tmp_path, "is missing", "clusters.one.users_file").endswith("is missing")
    assert located(tmp_path, "something else", "") == "something else"


def test_secrets_of_options_are_hidden(tmp_path: Path) -> None:
    shown = print_config(loaded(tmp_path))

    assert "open sesame" not in shown
    assert '"abc"' not in shown
    assert '"x"' not in shown
    assert '"key_file" = "keys"' in shown
