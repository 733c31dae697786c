"""Log maintenance on Spark: the `rookery job` commands, also available as functions.

spark = rookery.spark.session()
log = rookery.ClusterAddress(store="s3://bucket/log")
report = rookery.jobs.compact(spark, log, ["orders"])
assert report.is_right
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookery.exports import lazy_exports

if TYPE_CHECKING:
    from rookery.jobs.compaction import compact
    from rookery.jobs.copyjob import CopyRequest, copy
    from rookery.jobs.expiryjob import expire
    from rookery.jobs.importjob import FileImport, import_files
    from rookery.jobs.kafkacopy import copy_to_kafka
    from rookery.jobs.mergejob import merge
    from rookery.jobs.move.filerows import ImportFiles
    from rookery.jobs.move.kafkaprogress import CopiedRun, read_map
    from rookery.jobs.move.topicfill import FillTarget
    from rookery.jobs.proof import Proof
    from rookery.jobs.repartitionjob import repartition
    from rookery.jobs.replayjob import replay
    from rookery.jobs.report import JobPart, JobPlan, JobReport, JobRun, JobStep, Requests
    from rookery.jobs.scrubjob import scrub
    from rookery.store.prices import Prices

__all__ = [
    "CopiedRun",
    "CopyRequest",
    "FileImport",
    "FillTarget",
    "ImportFiles",
    "JobPart",
    "JobPlan",
    "JobReport",
    "JobRun",
    "JobStep",
    "Prices",
    "Proof",
    "Requests",
    "compact",
    "copy",
    "copy_to_kafka",
    "expire",
    "import_files",
    "merge",
    "read_map",
    "repartition",
    "replay",
    "scrub",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "rookery.jobs.compaction": ["compact"],
            "rookery.jobs.copyjob": ["CopyRequest", "copy"],
            "rookery.jobs.expiryjob": ["expire"],
            "rookery.jobs.importjob": ["FileImport", "import_files"],
            "rookery.jobs.kafkacopy": ["copy_to_kafka"],
            "rookery.jobs.mergejob": ["merge"],
            "rookery.jobs.move.filerows": ["ImportFiles"],
            "rookery.jobs.move.kafkaprogress": ["CopiedRun", "read_map"],
            "rookery.jobs.move.topicfill": ["FillTarget"],
            "rookery.jobs.proof": ["Proof"],
            "rookery.jobs.repartitionjob": ["repartition"],
            "rookery.jobs.replayjob": ["replay"],
            "rookery.jobs.report": [
                "JobPart",
                "JobPlan",
                "JobReport",
                "JobRun",
                "JobStep",
                "Requests",
            ],
            "rookery.jobs.scrubjob": ["scrub"],
            "rookery.store.prices": ["Prices"],
        },
    )
