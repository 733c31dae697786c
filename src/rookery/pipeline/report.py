"""Report of a pipeline's metrics as one HTML file, without server, network or scripts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from rookery.pipeline import plots
from rookery.pipeline.metrics import BatchMetrics

_STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:920px;padding:0 1rem;
color:#1b1f24;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin:2rem 0 .4rem}
svg{width:100%;height:auto}svg text{font:11px system-ui;fill:#555}.grid{stroke:#e3e6ea}
table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left}
.legend span{margin-right:1rem;font-size:13px}.legend i{display:inline-block;width:10px;
height:10px;margin-right:5px}
.bar{display:flex;align-items:center;gap:8px;font-size:13px}.bar span{flex:0 0 40%;
overflow-wrap:anywhere}.bar i{background:#0072b2;height:10px;display:inline-block}
@media(prefers-color-scheme:dark){body{background:#16191d;color:#dde1e6}
svg text{fill:#9aa3ad}.grid{stroke:#2c3238}}
"""
_MIB: Final = 1 << 20


def render_report(pipeline: str, batches: Sequence[BatchMetrics]) -> str:
    """Return the report of a pipeline's batches."""
    title = f"Pipeline {escape(pipeline)}"
    sections = [f"<h1>{title}</h1>", _summary(batches)]
    for heading, plot in _PLOTS:
        sections.append(f"<h2>{heading}</h2>{plot(batches)}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(sections)}</body></html>\n"
    )


def summarize_batches(batches: Sequence[BatchMetrics]) -> dict[str, object]:
    """Return the aggregated metrics of all batches."""
    rows: dict[str, int] = {}
    for batch in batches:
        for layer, count in batch.rows.items():
            rows[layer] = rows.get(layer, 0) + count
    fresh = sorted(
        batch.freshness_p50_ms for batch in batches if batch.freshness_p50_ms is not None
    )
    return {
        "batches": len(batches),
        "rows": rows,
        "bytes_in": sum(batch.bytes_in for batch in batches),
        "freshness_p50_ms": fresh[len(fresh) // 2] if fresh else None,
        "lag": sum(batches[-1].lag.values()) if batches else None,
        "last_commit_ms": batches[-1].at_ms if batches else None,
        "alerts": batches[-1].alerts if batches else [],
    }


def describe_batches(batches: Sequence[BatchMetrics]) -> list[tuple[str, str]]:
    """Return the summary as pairs of label and text, for display."""
    summary = summarize_batches(batches)
    rows = [("batches", str(summary["batches"]))]
    counts = summary["rows"]
    if isinstance(counts, dict):
        rows += [(f"rows, {layer}", f"{count:,}") for layer, count in counts.items()]
    if batches:
        at = datetime.fromtimestamp(batches[-1].at_ms / 1000, UTC)
        rows.append(("last commit", f"{at:%Y-%m-%d %H:%M:%S} UTC"))
        rows.append(("records not read then", f"{summary['lag']:,}"))
        if isinstance(fresh := summary["freshness_p50_ms"], int | float):
            rows.append(("freshness, p50", f"{fresh / 1000:.1f} s"))
        rows += [("look at", alert) for alert in batches[-1].alerts]
    return rows


def _summary(batches: Sequence[BatchMetrics]) -> str:
    lines = (
        f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>"
        for name, text in describe_batches(batches)
    )
    return f"<table>{''.join(lines)}</table>"


def _throughput(batches: Sequence[BatchMetrics]) -> str:
    points = [
        (_second(batch), batch.rows.get("bronze", 0) / max(sum(batch.phases_ms.values()), 1) * 1000)
        for batch in batches
    ]
    return plots.lines({"rows a second, while a batch is worked on": points}, "rows/s")


def _freshness(batches: Sequence[BatchMetrics]) -> str:
    series = {
        quantile: [
            (_second(batch), value / 1000)
            for batch in batches
            if (value := getattr(batch, f"freshness_{quantile}_ms")) is not None
        ]
        for quantile in ("p50", "p99")
    }
    return plots.lines(series, "seconds from a record's timestamp to its commit")


def _lag(batches: Sequence[BatchMetrics]) -> str:
    names = sorted({name for batch in batches for name in batch.lag})
    series = {
        name: [(_second(batch), float(batch.lag[name])) for batch in batches if name in batch.lag]
        for name in names
    }
    return plots.lines(series, "records not read yet, by partition")


def _phases(batches: Sequence[BatchMetrics]) -> str:
    names = list(dict.fromkeys(phase for batch in batches for phase in batch.phases_ms))
    series = {
        name: [(_second(batch), batch.phases_ms.get(name, 0) / 1000) for batch in batches]
        for name in names
    }
    return plots.stacks(series, "seconds of a batch, by phase")


def _sizes(batches: Sequence[BatchMetrics]) -> str:
    bounds = [1 << shift for shift in range(10, 30, 2)]
    counts = dict.fromkeys([*(_size(bound) for bound in bounds), "more"], 0.0)
    for batch in batches:
        for size in (size for sizes in batch.files.values() for size in sizes):
            name = next((_size(bound) for bound in bounds if size < bound), "more")
            counts[name] += 1
    return plots.bars({name: count for name, count in counts.items() if count}, "files")


def _size(bound: int) -> str:
    return f"below {bound // _MIB} MiB" if bound >= _MIB else f"below {bound >> 10} KiB"


def _second(batch: BatchMetrics) -> float:
    return batch.at_ms / 1000


_PLOTS: Final[tuple[tuple[str, Callable[[Sequence[BatchMetrics]], str]], ...]] = (
    ("Throughput", _throughput),
    ("Freshness", _freshness),
    ("Lag", _lag),
    ("Phases", _phases),
    ("Sizes of new files", _sizes),
)
