"""Upkeep of a log on Spark: `rookery job`, and the same as functions.

spark = rookery.spark.session()
report = rookery.jobs.compact(spark, ClusterAddress(store="s3://bucket/log"), ["orders"])
assert report.is_right
"""

from rookery.jobs.compaction import compact
from rookery.jobs.copying import CopyRequest, copy
from rookery.jobs.expiring import expire
from rookery.jobs.filerows import ImportFiles
from rookery.jobs.filling import Into
from rookery.jobs.importing import FileImport, import_files
from rookery.jobs.kafkacopy import copy_to_kafka
from rookery.jobs.merging import merge
from rookery.jobs.repartitioning import repartition
from rookery.jobs.replaying import replay
from rookery.jobs.report import JobReport, JobRun
from rookery.jobs.scrubbing import scrub

__all__ = [
    "CopyRequest",
    "FileImport",
    "ImportFiles",
    "Into",
    "JobReport",
    "JobRun",
    "compact",
    "copy",
    "copy_to_kafka",
    "expire",
    "import_files",
    "merge",
    "repartition",
    "replay",
    "scrub",
]
