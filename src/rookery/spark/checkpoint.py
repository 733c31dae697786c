"""Checks that a stream's checkpoint is in a location that every host can access.

Spark's Python package has no file system for object stores, so a checkpoint is often a folder. With
a remote master, the driver and the executors each see their own folder. State written by one host
is then missing on the next, and a driver that restarts on another host starts from the beginning.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError
from rookery.store.open import store_traits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARED_SETTING: Final = "spark.rookery.checkpoint.shared"
"""The Spark setting that declares local paths to be the same folder on all hosts."""

_MASTER_VARIABLE: Final = "ROOKERY_SPARK_MASTER"
DEFAULT_LOCATION: Final = "spark.sql.streaming.checkpointLocation"
"""Spark's setting for the default checkpoint folder; each query gets a folder below it."""


def check_checkpoint(location: str, *, master: str, is_shared: bool = False) -> None:
    """Refuse a checkpoint that only some of the hosts can access.

    Args:
        location: the checkpoint's path or URL.
        master: Spark's master, as in `spark.master`.
        is_shared: whether the user declares the folder to be shared by all hosts.

    Raises:
        ConfigError: it is a local path, Spark runs on other hosts, and it is not declared as
            shared.
    """
    if is_local(master) or is_shared or local_path(location) is None:
        return
    raise ConfigError(
        f"checkpointLocation={location} is a folder of one host, but Spark runs on others "
        f"(master {master}): name a place that all hosts see (an hdfs: or s3a: URL; the latter "
        f"needs hadoop-aws from Maven Central), or, if this folder is mounted on all of them, set "
        f"{SHARED_SETTING}=true"
    )


def check_tables(locations: Iterable[str], *, master: str, is_shared: bool = False) -> None:
    """Refuse tables whose files would be written to the local disks of different hosts.

    Args:
        locations: paths or URLs of tables.
        master: Spark's master, as in `spark.master`.
        is_shared: whether the user declares the folders to be shared by all hosts.

    Raises:
        ConfigError: one is a local path, Spark runs on other hosts, and it is not declared as
            shared.
    """
    apart = [location for location in locations if local_path(location) is not None]
    if apart and not is_local(master) and not is_shared:
        raise ConfigError(
            f"{apart[0]}: a table in a folder of one host, but Spark runs on others (master "
            f"{master}), and each would write its rows to its own disk: name a store "
            f"(s3://bucket/tables), or, if this folder is mounted on all of them, set "
            f"{SHARED_SETTING}=true"
        )


def check_session_tables(spark: SparkSession, locations: Iterable[str]) -> None:
    """Apply `check_tables` with a session's master and settings.

    Raises:
        ConfigError: see `check_tables`.
    """
    check_tables(locations, master=master_of(spark), is_shared=_is_shared(spark))


def check_session_checkpoint(spark: SparkSession, location: str | None = None) -> None:
    """Check that the checkpoint of a session's stream is where every host can access it.

    Args:
        spark: the session whose master and settings are used; it may be a Connect session.
        location: the checkpoint; by default the session's default location.

    Raises:
        ConfigError: it is a local path, Spark runs on other hosts, and it is not declared as
            shared.
    """
    location = location or spark.conf.get(DEFAULT_LOCATION, None)
    if location:
        check_checkpoint(location, master=master_of(spark), is_shared=_is_shared(spark))


def check_stream(location: str) -> None:
    """Apply `check_checkpoint` in a process that has no session.

    These are the processes in which Spark's driver plans sources and sinks. They know the remote
    master only if `rookery.spark.session` or `rookery spark submit` has started Spark.

    Raises:
        ConfigError: see `check_checkpoint`.
    """
    if location:
        check_checkpoint(location, master=remote_master() or "local")


def check_reachable(place: ClusterAddress) -> None:
    """Refuse a log in a folder of this host if tasks run on others.

    Raises:
        ConfigError: Spark's executors cannot read it.
    """
    if place.data and (master := remote_master()):
        raise ConfigError(
            f"data={place.data}: a folder of one host, but Spark runs on others (master {master}): "
            "brokers must keep their log in a store that all hosts reach (rookery broker --store)"
        )


def check_gaps(location: str) -> None:
    """Refuse to report gaps to a local folder if the tasks run on other hosts.

    Raises:
        ConfigError: each host would write its reports to its own disk.
    """
    if location and store_traits(location).is_on_this_host and (master := remote_master()):
        raise ConfigError(
            f"gapsTo={location}: a folder of one host, but Spark runs on others (master {master}): "
            f"name a store (s3://bucket/gaps), or, if this folder is mounted on all of them, set "
            f"{SHARED_SETTING}=true"
        )


def local_path(location: str) -> Path | None:
    """Return the folder of a location of Spark's; None if it is in another file system."""
    parts = urlsplit(location)
    if parts.scheme not in {"", "file"}:
        return None
    return Path(unquote(parts.path) if parts.scheme else location)


def remote_master() -> str:
    """Return the master of the Spark that runs this process; empty if it is local."""
    return os.environ.get(_MASTER_VARIABLE, "")  # noqa: TID251 (the only way into such a process)


def export_master(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables from which `check_stream` learns the remote master."""
    is_shared = settings.get(SHARED_SETTING, "").lower() == "true"
    return {} if is_local(master) or is_shared else {_MASTER_VARIABLE: master}


def _is_shared(spark: SparkSession) -> bool:
    return (spark.conf.get(SHARED_SETTING, None) or "").lower() == "true"


def master_of(spark: SparkSession) -> str:
    """Return the master of a session, classic or Connect; `local` if it is not reported."""
    return spark.conf.get("spark.master", None) or "local"


def is_local(master: str) -> bool:
    """Return whether Spark runs on this host only."""
    # This includes local-cluster[…], whose executors are processes of this host.
    return master.startswith("local")
