"""A job on Spark, from its arguments to its report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.cli.options.jobs import JobArguments
from rookery.cli.options.storage import place_of
from rookery.cli.output.jobs import JobDisplay
from rookery.cli.sparkplace import find_archive
from rookery.direct.place import ClusterAddress
from rookery.jobs import JobReport, JobRun
from rookery.spark.sparksession import own_tuning, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_job(
    job: str, args: JobArguments, work: Callable[[SparkSession, ClusterAddress, JobRun], JobReport]
) -> int:
    """Run a job; return 1 if it reports problems.

    Raises:
        ConfigError: an argument cannot be used, or there is no log; Spark is not started then.
    """
    args.check()
    place = place_of(args.log.load_settings())
    place.origin().check_there(with_log=True)  # before Spark is started, which takes long
    archive = find_archive(args.spark, remote=args.spark.remote)
    with JobDisplay(job, is_json=args.json, is_quiet=args.quiet) as showing:
        plan = JobRun(
            dry_run=args.dry_run,
            max_bytes=args.max_bytes,
            proof=not args.no_proof,
            progress=showing.step,
        )
        spark = _start(job, args, archive)
        try:
            report = work(spark, place, plan)
        finally:
            spark.stop()
    showing.report(report)
    return 0 if report.is_right else 1


def _start(job: str, args: JobArguments, archive: Path | None) -> SparkSession:
    settings = dict(args.spark.conf)
    if not args.spark.remote:  # Spark's own bar would be written over ours
        settings.setdefault("spark.ui.showConsoleProgress", "false")
    return session(
        f"rookery job {job}",
        args.spark.master,
        settings=settings,
        remote=args.spark.remote,
        archive=archive,
        can_plan_topics=False,
        tuning="" if args.spark.remote else own_tuning(),  # a server's processes are not ours
    )
