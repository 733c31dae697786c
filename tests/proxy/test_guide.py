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
from rookery.proxy.filterload import filter_types, find_class, load_filters
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


FILES = {
    "users.toml": '[erin]\npassword = "edge-secret"\n',
    "orders.sql": "id bigint, name string, tags array<string>",
}
CONFIGURATIONS = re.findall(r"```toml\n(\[proxy\.clusters.*?)```", GUIDE, re.DOTALL)


def example(start: str) -> str:
    """Return the example of a file that begins in a certain way."""
    [text] = re.findall(rf"```toml\n({re.escape(start)}.*?)```", GUIDE, re.DOTALL)
    return str(text)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the files that the examples name."""
    monkeypatch.chdir(tmp_path)
    files = {"rules.toml": example("[[rules]]"), "keys.toml": example("active"), **FILES}
    for name, text in files.items():
        path = tmp_path / name
        path.touch(mode=0o600)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize("text", CONFIGURATIONS, ids=range(len(CONFIGURATIONS)))
def test_file_of_the_guide_can_be_loaded(folder: Path, text: str) -> None:
    file = folder / "proxy.toml"
    file.write_text(text)

    settings = load(ProxySettings, "proxy", environ={}, files=[file]).settings

    for each in settings.virtual_clusters().values():
        assert len(load_filters(each, settings.filter)) == len(each.filters)


def test_every_filter_has_an_example() -> None:
    shown = set(re.findall(r'^type = "(\w+)"$', "".join(CONFIGURATIONS), re.MULTILINE))

    assert shown == set(filter_types())


def test_guide_lists_all_filters_with_their_options() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (`.*?`) \|", GUIDE, re.MULTILINE))

    assert sorted(rows) == filter_types()
    for kind, listed in rows.items():
        assert set(re.findall(r"`(\w+)`", listed)) == set(find_class(kind, kind).OPTIONS)
