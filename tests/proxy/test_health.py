"""The proxy's health for each virtual cluster: problems begin and end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from rookery.broker.settings import BrokerSettings
from rookery.net.httptext import HttpRequest, Refusal
from rookery.proxy.filterapi import ANY, Filter, FilterContext, Verdict, on_request
from rookery.proxy.observe import ProxyObserver, cluster_pages
from rookery.proxy.operation.filterhealth import FilterHealth
from rookery.proxy.operation.settingsreload import SettingsReload
from rookery.proxy.settings import ProxySettings
from rookery.service.listen.listenersettings import ListenerSecurity
from rookery.testing.clock import ManualClock
from rookery.testing.ports import HOST, free_ports
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.message import Message
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from tests.proxy.listings import cluster_at


def write_certificate(path: Path, not_after: datetime) -> None:
    trustme.CA().issue_cert(
        HOST, not_before=not_after - timedelta(days=10), not_after=not_after
    ).private_key_and_cert_chain_pem.write_to_path(str(path))


class Page:
    """The health of a proxy, as HTTP requests get it."""

    def __init__(self, proxy: ServedProxy) -> None:
        self._proxy = proxy
        self._observer = proxy.do(self._observe())

    async def _observe(self) -> ProxyObserver:
        reload = SettingsReload(self._proxy.proxy.apply, asyncio.Event())
        return ProxyObserver(self._proxy.proxy, reload)

    @property
    def problems(self) -> dict[str, str]:
        """The problems of all clients of a cluster."""
        return checked(self._observer.ready_checks())

    @property
    def warnings(self) -> dict[str, str]:
        """What else is wrong."""
        return checked(self._observer.warnings())

    def of(self, cluster: str) -> tuple[int, dict[str, Any]]:
        """Return the status and the report of one cluster."""
        route = cluster_pages(self._proxy.proxy)["/health/ready/*"]
        request = HttpRequest("GET", f"/health/ready/{cluster}")

        async def respond() -> tuple[int, dict[str, Any]]:
            response = await route(request)
            return response.status.value, json.loads(response.body)

        return self._proxy.do(respond())


def test_health_follows_upstream_and_certificate(tmp_path: Path) -> None:
    certificate = tmp_path / "proxy.pem"
    write_certificate(certificate, datetime.now(UTC) - timedelta(days=1))
    broker = ServedBroker(tmp_path / "data", BrokerSettings(durability="os"))
    plain = cluster_at(broker.bootstrap)
    closed = cluster_at(broker.bootstrap)
    closed = replace(
        closed,
        listen=f"ssl://{closed.listen}",
        security=ListenerSecurity(certificate_file=str(certificate)),
    )
    settings = ProxySettings(clusters={"plain": plain, "closed": closed}, refresh_interval_ms=100)
    with ServedProxy(settings=settings) as proxy:
        page = Page(proxy)
        assert page.problems.keys() == {"upstream plain", "upstream closed", "certificate closed"}
        assert "has expired at" in page.problems["certificate closed"]
        with broker:
            wait_until(lambda: page.problems.keys() == {"certificate closed"})
            assert page.of("plain") == (200, {"ok": True, "problems": {}})
            status, report = page.of("closed")
            assert (status, report["problems"].keys()) == (503, {"certificate"})
            with pytest.raises(Refusal):
                page.of("other")
            write_certificate(certificate, datetime.now(UTC) + timedelta(days=1))
            wait_until(lambda: not page.problems)
            certificate.write_text("nonsense")
            wait_until(lambda: page.warnings)

            assert "previous certificate stays" in page.warnings["certificates and users of closed"]
            assert page.of("closed")[0] == 200
        wait_until(lambda: page.problems.keys() == {"upstream plain", "upstream closed"})


class Faulty(Filter):
    """Fails on every request."""

    @on_request(ANY)
    def see(self, context: FilterContext, request: Message) -> Verdict:
        raise RuntimeError("out of order")


def checked(checks: Mapping[str, Any]) -> dict[str, str]:
    return {name: problem for name, check in checks.items() if (problem := check())}


def test_failing_filter_and_missing_port_are_warnings(tmp_path: Path) -> None:
    first = free_ports(1)
    settings = ProxySettings(node_ports=f"{first}-{first}", refresh_interval_ms=100)
    settings_of = BrokerSettings(durability="os")

    with (
        ServedBroker(tmp_path / "data", replace(settings_of, node_id=1)) as broker,
        ServedBroker(tmp_path / "data", replace(settings_of, node_id=2)),
        ServedProxy(broker.bootstrap, settings, [Faulty()]) as proxy,
    ):
        page = Page(proxy)
        # The broker that answered first may not have known the other one yet.
        wait_until(lambda: page.warnings.keys() == {"brokers of default"})
        assert page.problems == {}
        assert "broker 2 of the upstream gets no port" in page.warnings["brokers of default"]
        ask(proxy.bootstrap, LIST_GROUPS, 4, ListGroupsRequest(states_filter=[]))

        assert "out of order" in page.warnings["filters of default"]
        assert page.problems == {}


def test_fault_of_a_filter_is_forgotten() -> None:
    clock = ManualClock()
    health = FilterHealth("nest", clock)
    assert health.trouble == ""
    health.report("it broke")
    assert health.trouble == "a filter has failed: it broke"
    clock.advance(60_000)

    assert health.trouble == ""
