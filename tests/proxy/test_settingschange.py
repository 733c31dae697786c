"""Every setting of the proxy has an effect of a reload, and every metric a line in the guide."""

from __future__ import annotations

import pkgutil
import re
from dataclasses import fields
from importlib import import_module

import pytest

import rookery.proxy
from rookery import metrics
from rookery.proxy.operation.settingschange import (
    AT_ONCE,
    NEED_RESTART,
    OF_ALL_CLUSTERS,
    compare,
)
from rookery.proxy.settings import FilterSettings, ProxySettings, VirtualClusterSettings

GROUPS = (NEED_RESTART, OF_ALL_CLUSTERS, AT_ONCE)


def test_every_setting_of_the_process_is_in_one_group() -> None:
    own = {each.name for each in fields(ProxySettings)}
    own -= {each.name for each in fields(VirtualClusterSettings)} | {"clusters", "filter"}

    assert {name for group in GROUPS for name in group} == own
    assert sum(map(len, GROUPS)) == len(own)


def test_guide_names_every_setting_of_a_group(pytestconfig: pytest.Config) -> None:
    guide = (pytestconfig.rootpath / "docs" / "guide" / "proxy.md").read_text("utf-8")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", guide, re.MULTILINE)
    named = [set(re.findall(r"\w+", row)) for row in rows]

    for group in GROUPS:
        assert group - {"is_shared"} in named


def test_guide_names_every_metric(pytestconfig: pytest.Config) -> None:
    guide = (pytestconfig.rootpath / "docs" / "guide" / "proxy.md").read_text("utf-8")
    for module in pkgutil.walk_packages(rookery.proxy.__path__, "rookery.proxy."):
        import_module(module.name)
    defined = re.findall(
        r"^# TYPE (rookery_proxy_\w+)", "".join(metrics.REGISTRY.blocks()), re.MULTILINE
    )

    assert set(re.findall(r"^\| `(rookery_proxy_\w+)`", guide, re.MULTILINE)) == set(defined)


def test_filter_that_no_cluster_uses_changes_nothing() -> None:
    cluster = VirtualClusterSettings(upstream="kafka:9092", filters=("deny",))
    old = ProxySettings(clusters={"one": cluster})
    unused = {"other": FilterSettings("topic_prefix", {"prefix": "a."})}
    change = compare(old, ProxySettings(clusters={"one": cluster}, filter=unused))

    assert (change.opened, change.closed, change.need_restart) == ((), (), ())


def test_only_cluster_without_a_table_can_change() -> None:
    change = compare(ProxySettings(upstream="a:1"), ProxySettings(upstream="b:1"))

    assert change.changed == ("default",)
