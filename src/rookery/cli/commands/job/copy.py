"""`rookery job copy`: copies topics into another cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rookery.cli.command import Command
from rookery.cli.options.connection import Credentials
from rookery.cli.options.fields import option, part, positional, switch
from rookery.cli.options.jobs import FillArguments, offset_map_option
from rookery.errors import ConfigError

if TYPE_CHECKING:
    from rookery.client.settings import ClientSettings
    from rookery.jobs import CopyRequest

_WHERE: Final = "target"


@dataclass(frozen=True, kw_only=True)
class CopyTopics(FillArguments):
    """Which topics, into which cluster."""

    topics: tuple[str, ...] = positional("TOPIC", "the topics to copy", nargs="+")
    to_store: str = option(
        "--to-store",
        group=_WHERE,
        default="",
        metavar="URL",
        help="the store of the target cluster",
    )
    to_cluster: str = option(
        "--to-cluster",
        group=_WHERE,
        default="",
        metavar="URL",
        help="the cluster log of the target, or the name of a configured cluster",
    )
    to_namespace: str = option(
        "--to-namespace",
        group=_WHERE,
        default="default",
        metavar="NAME",
        help="the namespace of the target (default: default)",
    )
    to_data: str = option(
        "--to-data",
        group=_WHERE,
        default="",
        metavar="FOLDER",
        help="the data folder of the target on this host",
    )
    to_kafka: str = option(
        "--to-kafka",
        group=_WHERE,
        default="",
        metavar="HOST:PORT",
        help="the brokers of a target Kafka cluster",
    )
    at_least_once: bool = switch(
        "--at-least-once",
        group=_WHERE,
        help="allow a target Kafka without transactions; a failure can then duplicate records",
    )
    credentials: Credentials = part(Credentials, "connection to the target Kafka")
    prefix: str = option(
        "--prefix", default="", metavar="TEXT", help="a prefix for the names of the copies"
    )
    name: str = option(
        "--name",
        default="",
        metavar="TEXT",
        help="a name for the job, by which a later run resumes it",
    )
    offset_map: str = offset_map_option()


def run(args: CopyTopics) -> int:
    """Copy topics into another cluster."""
    from rookery import jobs
    from rookery.cli.jobs import run_job
    from rookery.direct.place import ClusterAddress

    copying = _make_request(args)
    if args.to_kafka:
        kafka = _kafka(args, copying)
        return run_job(
            "copy",
            args,
            lambda spark, place, plan: jobs.copy_to_kafka(
                spark, place, kafka, copying, plan, is_exact=not args.at_least_once
            ),
        )
    target = ClusterAddress(args.to_store, args.to_cluster, args.to_namespace, args.to_data)
    if target == ClusterAddress():
        raise ConfigError("copy: name the other cluster with --to-store, --to-data or --to-kafka")
    return run_job(
        "copy",
        args,
        lambda spark, place, plan: jobs.copy(spark, place, target, copying, plan),
    )


def _kafka(args: CopyTopics, copying: CopyRequest) -> ClientSettings:
    """Return how the Kafka is reached that is copied to; may ask for a password."""
    from rookery.client.settings import ClientSettings
    from rookery.jobs.kafkacopy import check_map

    check_map(copying)
    return ClientSettings(
        bootstrap=args.to_kafka,
        client_id="rookery-job",
        tls=args.credentials.client_tls(),
        sasl=args.credentials.sasl(),
    )


def _make_request(args: CopyTopics) -> CopyRequest:
    from rookery.direct.layout import PackSettings
    from rookery.jobs import CopyRequest

    return CopyRequest(
        args.topics,
        args.prefix,
        args.name,
        args.offset_map,
        PackSettings(compression=args.compression),
        args.slice_bytes,
    )


COMMAND = Command(
    arguments=CopyTopics,
    run=run,
    summary="Copy topics to another Rookery or Kafka cluster.",
    example="rookery job copy orders --store s3://a/log --to-store s3://b/log\n"
    "  rookery job copy orders --store s3://a/log --to-kafka 10.0.0.9:9092 --tls --user copier",
)
