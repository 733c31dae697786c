"""Declarative pipelines from topics to tables: bronze, silver, gold, dead letters and late rows.

Executors stage each batch. One batch manifest records it, and the batch is committed from the
manifest to every table. The manifests, not Spark's checkpoint, define the position of a pipeline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookery.exports import lazy_exports

if TYPE_CHECKING:
    from rookery.pipeline.batch.engine import BatchPlan
    from rookery.pipeline.declaration.export import export
    from rookery.pipeline.declaration.load import load
    from rookery.pipeline.declaration.spec import (
        Decode,
        Gold,
        Pipeline,
        Silver,
        Sink,
        Source,
        Upkeep,
    )
    from rookery.pipeline.gold import make_gold
    from rookery.pipeline.metrics import BatchMetrics, MetricsFile, read_metrics
    from rookery.pipeline.proof import prove_gold, prove_tables
    from rookery.pipeline.report import render_report, summarize_batches
    from rookery.pipeline.reprocess.backfill import backfill
    from rookery.pipeline.reprocess.migration import Migration
    from rookery.pipeline.reprocess.rebuild import rebuild
    from rookery.pipeline.reprocess.replay import replay_dead_letters
    from rookery.pipeline.run import BatchPace, run_pipeline
    from rookery.pipeline.upkeep import keep_up

__all__ = [
    "BatchMetrics",
    "BatchPace",
    "BatchPlan",
    "Decode",
    "Gold",
    "MetricsFile",
    "Migration",
    "Pipeline",
    "Silver",
    "Sink",
    "Source",
    "Upkeep",
    "backfill",
    "export",
    "keep_up",
    "load",
    "make_gold",
    "prove_gold",
    "prove_tables",
    "read_metrics",
    "rebuild",
    "render_report",
    "replay_dead_letters",
    "run_pipeline",
    "summarize_batches",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "rookery.pipeline.batch.engine": ["BatchPlan"],
            "rookery.pipeline.declaration.export": ["export"],
            "rookery.pipeline.declaration.load": ["load"],
            "rookery.pipeline.declaration.spec": [
                "Decode",
                "Gold",
                "Pipeline",
                "Silver",
                "Sink",
                "Source",
                "Upkeep",
            ],
            "rookery.pipeline.gold": ["make_gold"],
            "rookery.pipeline.metrics": ["BatchMetrics", "MetricsFile", "read_metrics"],
            "rookery.pipeline.proof": ["prove_gold", "prove_tables"],
            "rookery.pipeline.report": ["render_report", "summarize_batches"],
            "rookery.pipeline.reprocess.backfill": ["backfill"],
            "rookery.pipeline.reprocess.migration": ["Migration"],
            "rookery.pipeline.reprocess.rebuild": ["rebuild"],
            "rookery.pipeline.reprocess.replay": ["replay_dead_letters"],
            "rookery.pipeline.run": ["BatchPace", "run_pipeline"],
            "rookery.pipeline.upkeep": ["keep_up"],
        },
    )
