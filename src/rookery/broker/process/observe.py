"""The broker's HTTP endpoints: metrics, liveness and readiness.

Components count in plain attributes, which are copied into the metrics on each read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from rookery import metrics
from rookery.broker.broker import Broker
from rookery.broker.groups.lag import GroupLag
from rookery.clock import SystemClock
from rookery.errors import Error
from rookery.log.read.cache import BlockCache
from rookery.log.write import traffic
from rookery.metrics import Counter, Gauge, MetricReading
from rookery.net.http import Checks
from rookery.service.health import ServerHealth
from rookery.service.listen.listenermetrics import listener_numbers
from rookery.store.wrappers import cost_of

MAX_LAG: Final = 1_000
"""The lag behind the cluster log, in entries, above which a broker is not ready."""
_PATIENCE: Final = 2.0

_WAITING: Final = metrics.gauge(
    "rookery_broker_fetches_waiting", "Partitions that fetches wait for."
)
_TOPICS: Final = metrics.gauge("rookery_broker_topics_known", "Topics of the cluster.")
_BROKERS: Final = metrics.gauge("rookery_broker_brokers_live", "Live brokers of the cluster.")
_FAILING: Final = metrics.gauge(
    "rookery_broker_chores_failing", "Periodic tasks whose last run failed."
)
_TAIL_HITS: Final = metrics.counter("rookery_log_tail_hits_total", "Reads served from the tail.")
_TAIL_MISSES: Final = metrics.counter(
    "rookery_log_tail_misses_total", "Reads that the tail could not serve."
)
_TAIL_BYTES: Final = metrics.gauge("rookery_log_tail_bytes", "Memory that the tail uses.")
_CACHE_HITS: Final = metrics.counter(
    "rookery_log_cache_hits_total", "Blocks that were in the cache."
)
_CACHE_MISSES: Final = metrics.counter("rookery_log_cache_misses_total", "Blocks read from disk.")
_CACHE_JOINED: Final = metrics.counter(
    "rookery_log_cache_joined_total", "Blocks that another read was already fetching."
)
_CACHE_AHEAD: Final = metrics.counter(
    "rookery_log_cache_ahead_total", "Blocks fetched by read-ahead."
)
_CACHE_EVICTED: Final = metrics.counter(
    "rookery_log_cache_evicted_total", "Blocks evicted from the cache."
)
_CACHE_BYTES: Final = metrics.gauge("rookery_log_cache_bytes", "Memory that the block cache uses.")
_JOURNAL_BYTES: Final = metrics.counter(
    "rookery_log_journal_bytes_total", "Bytes written to journals."
)
_JOURNAL_APPENDS: Final = metrics.counter(
    "rookery_log_journal_appends_total", "Appends to journals."
)
_JOURNAL_GROUPS: Final = metrics.counter(
    "rookery_log_journal_writes_total", "Writes (and syncs) of these appends."
)
_JOURNAL_PENDING: Final = metrics.gauge(
    "rookery_log_journal_pending_bytes", "Bytes that are being written to disk."
)
_JOURNAL_ABANDONED: Final = metrics.counter(
    "rookery_log_journal_abandoned_total", "Journal files abandoned after a failed write or sync."
)
_WRITE_FAILING: Final = metrics.gauge(
    "rookery_log_write_failing",
    "1 while the last write to the disk or the store failed, as on a full disk; else 0.",
)
_CARE_ROUNDS: Final = metrics.counter(
    "rookery_caretaker_rounds_total", "Maintenance rounds of the caretakers of this broker."
)
_CARE_DEATHS: Final = metrics.counter(
    "rookery_caretaker_deaths_total", "Caretakers of this broker that died and were replaced."
)
_CARE_FAILURES: Final = metrics.counter(
    "rookery_caretaker_failures_total", "Maintenance tasks that failed, counted at each attempt."
)
_CARE_QUARANTINED: Final = metrics.gauge(
    "rookery_caretaker_quarantined",
    "Partitions, rows, objects and steps that maintenance skips; see /health/ready.",
)
_CARE_COST: Final = metrics.gauge(
    "rookery_caretaker_store_cost_dollars", "The cost of the caretaker's requests to the store."
)
_CARE_REQUESTS: Final = metrics.counters(
    "rookery_caretaker_store_requests_total", "Requests of the caretaker, by kind.", ("kind",)
)
_REWRITE_LAG_BYTES: Final = metrics.gauge(
    "rookery_rewriter_lag_bytes", "Bytes that wait to be merged or moved into segments."
)
_REWRITE_LAG_SECONDS: Final = metrics.gauge(
    "rookery_rewriter_lag_seconds", "How long the oldest of these bytes is overdue."
)
_APPLIED: Final = metrics.gauge(
    "rookery_cluster_applied_entry", "Number of the last cluster log entry applied here."
)
_LAG: Final = metrics.gauge(
    "rookery_cluster_lag_entries", "Entries of the cluster log that are not applied here yet."
)
_PROPOSALS: Final = metrics.gauge(
    "rookery_cluster_proposals_waiting", "Proposals that are not in an entry yet."
)


class Observer(ServerHealth):
    """Copies a broker's counters into the metrics, and checks its health."""

    def __init__(self, broker: Broker) -> None:
        super().__init__("broker", broker, _numbers(broker))
        self._broker = broker
        self._unreachable = ""
        self._lag = GroupLag(
            broker.groups, broker.replica, SystemClock(), broker.settings.group_lag_partitions
        )

    def ready_checks(self) -> Checks:
        """Return the checks that decide whether the broker can serve clients."""
        is_local = self._broker.backing.traits.is_on_this_host
        return {
            **super().ready_checks(),
            "draining": self._check_draining,
            "cluster log": self._out_of_reach,
            "replica": self._behind,
            "membership": self._not_a_member,
            "access rules": self._check_outdated,
            "disk": lambda: self._cannot_write("disk", is_written=is_local),
            "store": lambda: self._cannot_write("store", is_written=not is_local),
        }

    def warnings(self) -> Checks:
        """Return the checks for problems that do not prevent the broker from serving clients."""
        return {
            "caretaker": lambda: self._broker.caretaking.trouble,
            "certificates": lambda: self._broker.ports.certificate_trouble,
            "keys of tokens": lambda: self._broker.ports.key_trouble,
        }

    async def refresh(self) -> None:
        """Update all metrics."""
        await super().refresh()
        for kind, count in self._broker.caretaking.requests.items():
            _CARE_REQUESTS.labels(kind).value = count
        await self._lag.refresh()
        services = self._broker.services
        services.telemetry.expire(services.clock.monotonic_ms())
        topics = self._broker.replica.state.topics
        for direction in (traffic.WRITTEN, traffic.READ):
            direction.keep(topics.by_id, topics.by_name)

    async def probe(self) -> None:
        """Query the cluster log for the lag."""
        try:
            async with asyncio.timeout(_PATIENCE):
                _LAG.value = await self._broker.replica.lag()
        except TimeoutError:
            self._unreachable = f"no answer within {_PATIENCE:g} s"
        except Error as error:
            self._unreachable = str(error)
        else:
            self._unreachable = ""

    def _cannot_write(self, dependency: str, *, is_written: bool) -> str:
        failure = self._broker.flush_target.failure if is_written else None
        return failure or self._broker.stalls.problem(dependency)

    def _check_draining(self) -> str:
        return "the broker is stopping" if self._broker.is_stopping else ""

    def _out_of_reach(self) -> str:
        broker = self._broker
        stuck = broker.stalls.problem("cluster log")
        return stuck or self._unreachable or broker.replica.trouble

    def _behind(self) -> str:
        return f"{_LAG.value:g} entries behind the cluster log" if _LAG.value > MAX_LAG else ""

    def _not_a_member(self) -> str:
        is_member = self._broker.member.is_alive
        return "" if is_member else "the broker was expired and is joining again"

    def _check_outdated(self) -> str:
        services = self._broker.services
        return services.lease.problem() if services.lease and services.checks_clients else ""


def _numbers(broker: Broker) -> list[MetricReading]:
    tail, replica = broker.tail, broker.replica
    return [
        (_WAITING, lambda: len(broker.waiting)),
        (_TOPICS, lambda: len(replica.state.topics.by_name)),
        (_BROKERS, lambda: len(replica.state.brokers.by_node)),
        (_FAILING, lambda: len(broker.periodic_tasks.failing) + bool(broker.member.trouble)),
        (_TAIL_HITS, lambda: tail.hits),
        (_TAIL_MISSES, lambda: tail.misses),
        (_TAIL_BYTES, lambda: tail.used),
        *_cache_numbers(broker.backing.cache),
        (_CARE_ROUNDS, lambda: broker.caretaking.rounds),
        (_CARE_DEATHS, lambda: broker.caretaking.deaths),
        (_CARE_FAILURES, lambda: broker.caretaking.failures),
        (_CARE_QUARANTINED, lambda: broker.caretaking.report.get("quarantined", 0)),
        (_REWRITE_LAG_BYTES, lambda: broker.caretaking.report.get("lag_bytes", 0)),
        (_REWRITE_LAG_SECONDS, lambda: broker.caretaking.report.get("lag_ms", 0) / 1000),
        (_CARE_COST, lambda: cost_of(broker.settings.prices, broker.caretaking.requests)),
        (_WRITE_FAILING, lambda: float(broker.flush_target.failure is not None)),
        *_journal_numbers(broker),
        (_APPLIED, lambda: replica.state.applied),
        (_PROPOSALS, lambda: replica.waiting),
        *listener_numbers(broker.ports.listeners),
    ]


def _cache_numbers(cache: BlockCache | None) -> list[MetricReading]:
    if cache is None:
        return []
    return [
        (_CACHE_HITS, lambda: cache.hits),
        (_CACHE_MISSES, lambda: cache.misses),
        (_CACHE_JOINED, lambda: cache.joined),
        (_CACHE_AHEAD, lambda: cache.ahead),
        (_CACHE_EVICTED, lambda: cache.evicted),
        (_CACHE_BYTES, lambda: cache.held_bytes),
    ]


def _journal_numbers(broker: Broker) -> list[MetricReading]:
    names: dict[Counter | Gauge, str] = {
        _JOURNAL_BYTES: "written_bytes",
        _JOURNAL_APPENDS: "appends",
        _JOURNAL_GROUPS: "groups",
        _JOURNAL_PENDING: "pending_bytes",
        _JOURNAL_ABANDONED: "abandoned",
    }

    def reading(name: str) -> Callable[[], float]:
        # The journal changes after a rejoin, so it is looked up each time.
        return lambda: float(getattr(broker.journal, name, 0))

    return [(metric, reading(name)) for metric, name in names.items()]
