"""Log maintenance on Spark: the `rookery job` commands, also available as functions.

spark = rookery.spark.session()
report = rookery.jobs.compact(spark, ClusterAddress(store="s3://bucket/log"), ["orders"])
assert report.is_right
"""

from rookery.jobs.compaction import compact
from rookery.jobs.copyjob import CopyRequest, copy
from rookery.jobs.expiryjob import expire
from rookery.jobs.importjob import FileImport, import_files
from rookery.jobs.kafkacopy import copy_to_kafka
from rookery.jobs.mergejob import merge
from rookery.jobs.move.filerows import ImportFiles
from rookery.jobs.move.topicfill import Into
from rookery.jobs.repartitionjob import repartition
from rookery.jobs.replayjob import replay
from rookery.jobs.report import JobReport, JobRun
from rookery.jobs.scrubjob import scrub

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
