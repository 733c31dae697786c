"""The filter of the guide works as the guide says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.config.load import load
from rookery.proxy.filterload import filter_types, load_filters
from rookery.proxy.settings import ProxySettings
from rookery.testing.servedproxy import ServedProxy

GUIDE = (Path(__file__).parents[2] / "docs/guide/proxy.md").read_text("utf-8")


def test_filter_of_the_guide_refuses_large_topics(server: str) -> None:
    [code] = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 (our own guide)
    with ServedProxy(server, filters=[names["FewPartitions"]({"most": 3})]) as proxy:
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
        small, large = f"s-{uuid4().hex}", f"l-{uuid4().hex}"

        admin.create_topics([NewTopic(small, 3, 1)])[small].result(20)
        with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
            admin.create_topics([NewTopic(large, 4, 1)])[large].result(20)


@pytest.mark.parametrize(
    "text", re.findall(r"```toml\n(\[proxy\.clusters.*?)```", GUIDE, re.DOTALL), ids=range(2)
)
def test_file_of_the_guide_can_be_loaded(tmp_path: Path, text: str) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text(text)

    settings = load(ProxySettings, "proxy", environ={}, files=[file]).settings

    for each in settings.virtual_clusters().values():
        assert len(load_filters(each, settings.filter)) == len(each.filters)


def test_guide_lists_all_filters() -> None:
    listed = re.findall(r"^\| `(\w+)` \| `", GUIDE, re.MULTILINE)

    assert sorted(listed) == filter_types()
