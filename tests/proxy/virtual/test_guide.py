"""The configuration of the guide works, and passes to worker processes as it is."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from rookery.config.load import load
from rookery.errors import ConfigError
from rookery.proxy.settings import ProxySettings
from rookery.proxy.virtual.rules import VirtualRules
from rookery.testing.servedproxy import ServedProxy

GUIDE = (Path(__file__).parents[3] / "docs/guide/virtual-partitions.md").read_text("utf-8")


def test_the_configuration_of_the_guide_has_its_rules(tmp_path: Path) -> None:
    file = tmp_path / "proxy.toml"
    [text] = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)
    file.write_text(text)

    loaded = load(ProxySettings, "proxy", {}, files=[file]).settings
    settings = ProxySettings.from_json(json.loads(json.dumps(asdict(loaded))))

    rules = VirtualRules(settings.virtual_clusters()["shop"].virtual)
    found = {name: rules.find(name) for name in ("orders", "metrics.cpu", "other")}
    sizes = {name: rule and rule.remapper.virtual_partitions for name, rule in found.items()}
    assert sizes == {"orders": 1000, "metrics.cpu": 50, "other": 100}


def test_virtual_partitions_need_broker_nodes() -> None:
    virtual = {"virtual_partitions": 4, "physical_partitions": 2}
    with (
        pytest.raises(ConfigError, match="nodes"),
        ServedProxy("127.0.0.1:1", ProxySettings(virtual=virtual)),
    ):
        pass
