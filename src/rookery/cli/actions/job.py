"""The work of `rookery job`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rookery import jobs
from rookery.broker.settings import BrokerSettings
from rookery.cli.actions.connecting import sasl_of, tls_of
from rookery.cli.actions.jobshow import Showing
from rookery.cli.actions.sparkplace import find_archive
from rookery.cli.storing import load_settings
from rookery.client.settings import ClientSettings
from rookery.direct.layout import Packing
from rookery.direct.place import Place
from rookery.direct.targets import MAX_PARTITIONS
from rookery.errors import ConfigError
from rookery.jobs import Copying, Files, Import, Into, Report, Run
from rookery.jobs.kafkacopy import check_map
from rookery.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FAR: Final = (1 << 63) - 1
_NUMBERS: Final = {
    "--slice-bytes": (1, _FAR),
    "--partitions": (1, MAX_PARTITIONS),
    "--create-partitions": (0, MAX_PARTITIONS),
}


def run(args: argparse.Namespace) -> int:
    """Do a job; the exit code tells whether all is well."""
    _check_numbers(args)
    settings = load_settings(args)
    place = place_of(settings)
    place.origin().check_there(with_log=True)  # before Spark is started, which takes long
    args.kafka = _kafka(args)
    archive = find_archive(args)
    with Showing(args.job, is_json=args.json, is_quiet=args.quiet) as showing:
        plan = Run(
            dry_run=args.dry_run,
            max_bytes=args.max_bytes,
            proof=not args.no_proof,
            progress=showing.step,
        )
        name, confs = f"rookery job {args.job}", dict(args.conf)
        if not args.remote:  # Spark's own bar would be written over ours
            confs.setdefault("spark.ui.showConsoleProgress", "false")
        spark = session(
            name,
            args.master,
            settings=confs,
            remote=args.remote,
            archive=archive,
            can_plan_topics=False,
        )
        try:
            report = _JOBS[args.job](spark, place, args, plan)
        finally:
            spark.stop()
    showing.report(report)
    return 0 if report.is_right else 1


def _check_numbers(args: argparse.Namespace) -> None:
    for flag, (least, most) in _NUMBERS.items():
        value = getattr(args, flag[2:].replace("-", "_"), least)
        if not least <= value <= most:
            bounds = f"at least {least}" if most == _FAR else f"from {least} to {most}"
            raise ConfigError(f"{flag} {value}: must be {bounds}")


def _kafka(args: argparse.Namespace) -> ClientSettings | None:
    """Return how the Kafka is reached that is copied to, if it is one; may ask for a password."""
    if args.job != "copy" or not args.to_kafka:
        return None
    check_map(_copying(args))
    return ClientSettings(
        bootstrap=args.to_kafka, client_id="rookery-job", tls=tls_of(args), sasl=sasl_of(args)
    )


def place_of(settings: BrokerSettings) -> Place:
    """Return where the log of brokers with these settings lies."""
    if settings.cluster and ":" not in settings.cluster:
        return Place(cluster=settings.cluster)
    if settings.store:
        return Place(settings.store, settings.cluster, settings.namespace)
    return Place(data=settings.data, namespace=settings.namespace)


def _compact(spark: SparkSession, place: Place, args: argparse.Namespace, run: Run) -> Report:
    return jobs.compact(spark, place, args.topics, run)


def _merge(spark: SparkSession, place: Place, args: argparse.Namespace, run: Run) -> Report:
    return jobs.merge(spark, place, args.topics, run)


def _expire(spark: SparkSession, place: Place, args: argparse.Namespace, run: Run) -> Report:
    return jobs.expire(spark, place, args.topics, run)


def _scrub(spark: SparkSession, place: Place, args: argparse.Namespace, run: Run) -> Report:
    return jobs.scrub(spark, place, run, restart=args.restart)


def _repartition(spark: SparkSession, place: Place, args: argparse.Namespace, run: Run) -> Report:
    # Who moves consumers over needs the map, and it cannot be made later.
    offset_map = args.offset_map or f"{args.to}.offsets"
    into = _into(args, "" if offset_map == "none" else offset_map)
    return jobs.repartition(spark, place, args.topic, into, run)


def _replay(spark: SparkSession, place: Place, args: argparse.Namespace, run: Run) -> Report:
    return jobs.replay(spark, place, args.topics, _into(args, args.offset_map), run)


def _into(args: argparse.Namespace, offset_map: str) -> Into:
    packing = Packing(compression=args.compression)
    return Into(args.to, args.partitions, offset_map, packing, args.slice_bytes)


def _import(spark: SparkSession, place: Place, args: argparse.Namespace, run: Run) -> Report:
    files = Files(args.path, args.format, args.key, args.value, args.timestamp)
    packing = Packing(compression=args.compression)
    into = Import(args.topic, args.create_partitions, args.name, packing, args.slice_bytes)
    return jobs.import_files(spark, place, files, into, run)


def _copying(args: argparse.Namespace) -> Copying:
    return Copying(
        tuple(args.topics),
        args.prefix,
        args.name,
        args.offset_map,
        Packing(compression=args.compression),
        args.slice_bytes,
    )


def _copy(spark: SparkSession, place: Place, args: argparse.Namespace, run: Run) -> Report:
    copying = _copying(args)
    if args.kafka is not None:
        return jobs.copy_to_kafka(
            spark, place, args.kafka, copying, run, is_exact=not args.at_least_once
        )
    target = Place(args.to_store, args.to_cluster, args.to_namespace, args.to_data)
    if target == Place():
        raise ConfigError("copy: name the other cluster with --to-store, --to-data or --to-kafka")
    return jobs.copy(spark, place, target, copying, run)


_JOBS: Final[dict[str, Callable[[SparkSession, Place, argparse.Namespace, Run], Report]]] = {
    "compact": _compact,
    "merge": _merge,
    "expire": _expire,
    "scrub": _scrub,
    "repartition": _repartition,
    "replay": _replay,
    "import": _import,
    "copy": _copy,
}
