"""Filters of installed packages are found by their entry points."""

from __future__ import annotations

from importlib import invalidate_caches
from pathlib import Path

import pytest

from rookery.broker.settings import BrokerSettings
from rookery.errors import ConfigError, ErrorCode
from rookery.proxy.filterload import filter_types, load_filters
from rookery.proxy.settings import FilterSettings, VirtualClusterSettings
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.testing.servedproxy import ServedProxy
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest

MODULE = '''
from rookery import ErrorCode
from rookery.proxy import Answer, Filter, FilterContext, Verdict, on_request
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest


class NoGroups(Filter):
    """Answers that groups are not listed."""

    OPTIONS = {"code": "The error code."}

    @on_request(LIST_GROUPS)
    def answer(self, context: FilterContext, request: ListGroupsRequest) -> Verdict:
        return Answer(LIST_GROUPS.refuse(request, ErrorCode[self.options["code"]]))


NoFilter = dict
'''
ENTRY_POINTS = """
[rookery.filters]
no_groups = bird_filters:NoGroups
no_filter = bird_filters:NoFilter
"""


@pytest.fixture
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package as an installer leaves it: a module, and the metadata of its distribution."""
    site, metadata = tmp_path / "site", tmp_path / "site" / "bird_filters-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "bird_filters.py").write_text(MODULE)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bird-filters\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(site)
    invalidate_caches()


def settings_of(kind: str) -> tuple[VirtualClusterSettings, dict[str, FilterSettings]]:
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED.name
    return VirtualClusterSettings(filters=("one",)), {"one": FilterSettings(kind, {"code": code})}


@pytest.mark.usefixtures("_package")
def test_filter_of_a_package_serves_clients(tmp_path: Path) -> None:
    assert "no_groups" in filter_types()
    filters = load_filters(*settings_of("no_groups"))
    with (
        ServedBroker(tmp_path / "data", BrokerSettings(durability="os")) as broker,
        ServedProxy(broker.bootstrap, filters=filters) as proxy,
    ):
        answer = ask(proxy.bootstrap, LIST_GROUPS, 4, ListGroupsRequest(states_filter=[]))

    assert answer.error_code is ErrorCode.GROUP_AUTHORIZATION_FAILED


@pytest.mark.usefixtures("_package")
def test_entry_point_that_is_not_a_filter_is_refused() -> None:
    with pytest.raises(ConfigError, match="the entry point no_filter is not a class of filters"):
        load_filters(*settings_of("no_filter"))


def test_filter_of_a_package_that_is_not_installed_is_not_known() -> None:
    with pytest.raises(ConfigError, match="there is no filter 'no_groups'"):
        load_filters(*settings_of("no_groups"))
