"""Metrics: counting, and their text for Prometheus."""

from __future__ import annotations

import logging
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from rookery import metrics
from rookery.metrics import OTHER, Registry


def read(registry: Registry) -> dict[str, Metric]:
    """What Prometheus' own parser makes of it."""
    families: list[Metric] = list(text_string_to_metric_families(registry.expose()))
    return {family.name: family for family in families}


def samples(metric: Metric) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for sample in metric.samples
    }


@pytest.fixture
def registry() -> Registry:
    return Registry()


def test_counter_counts(registry: Registry) -> None:
    flushes = registry.counter("rookery_log_flushes_total", "How often.")
    flushes.inc()
    flushes.inc(2.5)
    metric = read(registry)["rookery_log_flushes"]
    assert (metric.type, metric.documentation) == ("counter", "How often.")
    assert samples(metric) == {("rookery_log_flushes_total", ()): 3.5}


def test_whole_number_is_exposed_exactly(registry: Registry) -> None:
    registry.counter("rookery_log_bytes_total", "Bytes.").inc(2**60 + 1)
    assert f"rookery_log_bytes_total {2**60 + 1}\n" in registry.expose()


def test_gauge_goes_up_and_down(registry: Registry) -> None:
    open_files = registry.gauge("rookery_log_files_open", "Now.")
    open_files.set(5)
    open_files.inc(2)
    open_files.dec()
    assert samples(read(registry)["rookery_log_files_open"]) == {("rookery_log_files_open", ()): 6}


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e300, -0.5, 3, True])
def test_gauge_can_call_a_function(registry: Registry, value: float) -> None:
    gauge = registry.gauge("rookery_log_files_open", "Now.", lambda: value)
    assert samples(read(registry)["rookery_log_files_open"])["rookery_log_files_open", ()] == value
    gauge.follow(None)
    assert samples(read(registry)["rookery_log_files_open"])["rookery_log_files_open", ()] == 0


def test_nan_is_exposed(registry: Registry) -> None:
    registry.gauge("rookery_log_files_open", "Now.").set(math.nan)
    [value] = samples(read(registry)["rookery_log_files_open"]).values()
    assert math.isnan(value)


def test_failing_gauge_does_not_affect_others(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    registry.gauge("rookery_log_files_open", "Now.", lambda: 1 // 0)
    registry.counter("rookery_log_flushes_total", "How often.").inc()
    with caplog.at_level(logging.ERROR):
        families = read(registry)
    assert samples(families["rookery_log_files_open"]) == {}
    assert samples(families["rookery_log_flushes"]) == {("rookery_log_flushes_total", ()): 1}
    assert "rookery_log_files_open" in caplog.text


def test_histogram_counts_by_bucket(registry: Registry) -> None:
    histogram = registry.histogram("rookery_log_flush_seconds", "How long.", (0.1, 1, 10))
    for value in (0.05, 0.1, 0.2, 1, 9, 11):
        histogram.observe(value)
    metric = read(registry)["rookery_log_flush_seconds"]
    name = "rookery_log_flush_seconds"
    assert metric.type == "histogram"
    assert samples(metric) == {
        (f"{name}_bucket", (("le", "0.1"),)): 2,
        (f"{name}_bucket", (("le", "1"),)): 4,
        (f"{name}_bucket", (("le", "10"),)): 5,
        (f"{name}_bucket", (("le", "+Inf"),)): 6,
        (f"{name}_sum", ()): pytest.approx(21.35),
        (f"{name}_count", ()): 6,
    }
    assert histogram.count == 6


@given(st.lists(st.floats(-1e9, 1e9)))
def test_every_value_is_counted_in_its_buckets(values: list[float]) -> None:
    registry = Registry()
    family = registry.histograms("rookery_log_flush_seconds", "x", ("disk",), (-5.0, 0.0, 7.5))
    child = family.labels("a")
    for value in values:
        child.observe(value)
    metric = read(registry)["rookery_log_flush_seconds"]
    for sample in metric.samples:
        if sample.name.endswith("_bucket"):
            assert sample.value == sum(value <= float(sample.labels["le"]) for value in values)
        assert sample.labels["disk"] == "a"


def test_children_are_separate(registry: Registry) -> None:
    family = registry.counters("rookery_broker_requests_total", "x", ("api", "error"))
    family.labels("Produce", "none").inc(2)
    family.labels("Fetch", "none").inc()
    assert family.labels("Produce", "none") is family.labels("Produce", "none")
    counts = samples(read(registry)["rookery_broker_requests"])
    name = "rookery_broker_requests_total"
    assert counts == {
        (name, (("api", "Produce"), ("error", "none"))): 2,
        (name, (("api", "Fetch"), ("error", "none"))): 1,
    }


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(codec="utf-8")))
def test_any_text_can_be_a_label_and_a_help_text(label: str, meaning: str) -> None:
    # The parser takes lines apart wherever Python would, and trims them; Prometheus does neither.
    meaning = " ".join(meaning.split()) + "\n\\"
    label = "".join(label.splitlines()) + '"\n\\n'
    registry = Registry()
    family = registry.gauges("rookery_log_files_open", meaning, ("path",))
    family.labels(label).set(7)
    metric = read(registry)["rookery_log_files_open"]
    assert metric.documentation == meaning
    assert samples(metric) == {("rookery_log_files_open", (("path", label),)): 7}


def test_values_beyond_the_bound_share_one_child(registry: Registry) -> None:
    family = registry.counters("rookery_broker_bytes_total", "x", ("topic", "way"), max_children=3)
    for number in range(10):
        family.labels(f"t{number}", "in").inc()
    assert len(family) == 4
    assert family.labels("t9", "in") is family.labels(OTHER, OTHER)
    assert family.labels(OTHER, OTHER).value == 7
    assert family.labels("t0", "in").value == 1


def test_removed_child_frees_its_place(registry: Registry) -> None:
    family = registry.counters("rookery_broker_bytes_total", "x", ("topic",), max_children=1)
    family.labels("old").inc()
    family.remove("old")
    family.remove("never was")
    family.labels("new").inc()
    name = "rookery_broker_bytes_total"
    assert samples(read(registry)["rookery_broker_bytes"]) == {(name, (("topic", "new"),)): 1}


def test_a_wrong_number_of_values_is_refused(registry: Registry) -> None:
    family = registry.counters("rookery_broker_bytes_total", "x", ("topic",))
    with pytest.raises(ValueError, match="2 values for the labels topic"):
        family.labels("a", "b")


@pytest.mark.parametrize(
    "name",
    ["kafka_x_total", "rookery_total", "rookery_Log_total", "rookery_log_x", "rookery_a b_total"],
)
def test_metric_names_follow_the_convention(registry: Registry, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        registry.counter(name, "x")


def test_only_counters_end_in_total(registry: Registry) -> None:
    with pytest.raises(ValueError, match="_total"):
        registry.gauge("rookery_log_files_total", "x")


def test_a_name_is_declared_once(registry: Registry) -> None:
    registry.gauge("rookery_log_files_open", "x")
    with pytest.raises(ValueError, match="twice"):
        registry.histogram("rookery_log_files_open", "x")


@pytest.mark.parametrize("labels", [(), ("a", "a"), ("le",), ("A",), ("a-b",)])
def test_label_names_follow_the_convention(registry: Registry, labels: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="label"):
        registry.gauges("rookery_log_files_open", "x", labels)


@pytest.mark.parametrize("bounds", [(), (1, 1), (2, 1), (1, math.inf), (math.nan,)])
def test_bucket_bounds_ascend(registry: Registry, bounds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="bounds"):
        registry.histogram("rookery_log_flush_seconds", "x", bounds)


def test_module_metrics_are_in_the_global_registry() -> None:
    assert metrics.counter.__self__ is metrics.REGISTRY  # type: ignore[attr-defined]  # a method


def test_long_exposition_is_split_at_line_ends(registry: Registry) -> None:
    registry.counter("rookery_log_flushes_total", "x")
    family = registry.gauges("rookery_log_files_open", "x", ("disk",))
    for number in range(998):
        family.labels(str(number)).set(number)
    blocks = list(registry.blocks())
    assert len(blocks) == 3
    assert all(block.endswith("\n") and block.count("\n") <= 501 for block in blocks)
    assert "".join(blocks) == registry.expose()
    assert len(read(registry)["rookery_log_files_open"].samples) == 998
