"""Creates a Spark session with settings that make Python sources fast.

The effect of each setting is documented in docs/guide/spark.md. `settings=` overrides all of them.
They are Spark's own settings. Changes to Spark's internals are in `tuning`, and are off by default.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rookery.errors import ConfigError
from rookery.spark.checkpoint import check_session_checkpoint, export_master
from rookery.spark.environment.drivercopy import check_archive, unpack_for_driver
from rookery.spark.environment.pack import PYTHON
from rookery.spark.environment.shipment import archive_setting, shipment
from rookery.spark.java import find_java
from rookery.spark.planner import extend_planner
from rookery.spark.tuning.choice import OWN, PATH, SETTING, Tuning, choose, python_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INSTALL: Final = 'pip install "rookery[spark]"'
_STREAMING: Final = "org.apache.spark.sql.execution.streaming"
_EXECUTORS: Final = "PYSPARK_PYTHON"
_DRIVER: Final = "PYSPARK_DRIVER_PYTHON"
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""The variable in which spark-submit passes the port of its Java process."""

WORKER_SETTINGS: Final = {
    # Over loopback TCP, a small message waits for an acknowledgement, which is half of a task's
    # cost.
    "spark.python.unix.domain.socket.enabled": "true",
}
"""Settings of the processes that run Python; they cannot change after Spark has started."""

SQL_SETTINGS: Final = {
    # The default, INT96, is read as nanoseconds and refused by Iceberg.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        f"{_STREAMING}.state.RocksDBStateStoreProvider"
    ),
}
"""Settings of SQL and streaming for all masters."""

CONNECT_SETTINGS: Final = {
    # A server plans a source when it analyses a DataFrame, and would cache that plan.
    "spark.connect.session.planCache.enabled": "false",
}
"""Settings of a session at a Connect server."""

LOCAL_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    # On local disks the default manager starts a process for every file that it writes.
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings for a Spark that runs only on this host."""


def session(  # noqa: PLR0913 (all but two are named)
    app: str = "rookery",
    master: str | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    remote: str | None = None,
    archive: str | Path | None = None,
    can_plan_topics: bool = True,
    tuning: str = "",
) -> SparkSession:
    """Return a Spark session for topics.

    A session that is already running is returned unchanged, and a warning names the settings it
    lacks. In a program started by spark-submit, the settings given there take precedence.

    Args:
        app: the application name in Spark.
        master: Spark's master; `local[*]` unless given here or by spark-submit.
        settings: Spark settings that override the defaults of this module.
        remote: the address of a Connect server, such as `sc://localhost`; instead of `master`.
        archive: an environment that `rookery spark pack` has written, for a master whose hosts have
            no rookery; not used on this host alone.
        can_plan_topics: whether Spark reads or writes `format("rookery")` here. An `archive` is
            then also unpacked into the current folder, where Spark plans. Pipelines and jobs plan
            in this process and do not need it.
        tuning: changes to Spark's internals, such as `rows-once,worker-daemon`, or `all`; the same
            as the Spark setting `spark.rookery.tuning`. See docs/guide/spark.md.

    Raises:
        ConfigError: there is no pyspark, Java or archive, both `master` or `archive` and `remote`
            are given, there is no such tuning, or the default checkpoint is in a folder that
            Spark's other hosts cannot access.
    """
    if remote and (master or archive):
        other = f"master={master}" if master else f"archive={archive}"
        raise ConfigError(f"{other} and remote={remote}: give only one of them")
    builder, settings = _builder().appName(app), dict(settings or {})
    if tuning:
        settings.setdefault(SETTING, tuning)
    packed = _PackedPython(Path(archive), can_plan_topics) if archive else None
    made = (
        _connect(builder, remote, settings) if remote else _start(builder, master, settings, packed)
    )
    check_session_checkpoint(made)
    return made


def settings_for(master: str, tunings: Iterable[Tuning] = ()) -> dict[str, str]:
    """Return the default settings of `session` for a master."""
    cores = local_cores(master)
    everywhere = {**WORKER_SETTINGS, **_settings_of(tunings), **SQL_SETTINGS}
    if cores is None:
        return everywhere
    return {**everywhere, **LOCAL_SETTINGS, "spark.sql.shuffle.partitions": str(cores)}


def choose_tunings(*sources: Mapping[str, str]) -> tuple[Tuning, ...]:
    """Return the tunings named by the first mapping that has the setting."""
    text = next((source[SETTING] for source in sources if SETTING in source), "")
    if not text:
        return ()
    from pyspark import __version__  # noqa: PLC0415 (it takes a second)

    return choose(text, __version__)


def _settings_of(tunings: Iterable[Tuning]) -> dict[str, str]:
    return {name: value for tuning in tunings for name, value in tuning.settings.items()}


def own_tuning() -> str:
    """Return the default tuning of Rookery's programs: none if Spark is already running."""
    return "" if _is_running() else OWN


def local_cores(master: str) -> int | None:
    """Return the number of cores that a local master uses; None if the master is remote."""
    if master == "local":
        return 1
    match = re.fullmatch(r"local\[(\d+|\*)(?:,\s*\d+)?\]", master)
    if match is None:
        return None
    return os.cpu_count() or 1 if match[1] == "*" else int(match[1])


class _PackedPython(NamedTuple):
    """The Python in an archive that executors unpack."""

    archive: Path
    can_plan_topics: bool

    def settings(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the Spark settings for it, merged with the user's."""
        check_archive(self.archive)
        return archive_setting(self.archive, given)

    def variables(self) -> dict[str, str]:
        """Return the environment for Spark's Java process, after unpacking the archive."""
        if not self.can_plan_topics:
            return {_EXECUTORS: PYTHON, _DRIVER: sys.executable}
        unpack_for_driver(self.archive, Path.cwd())
        # The unpacked packages need a Python of this version, which is not always on the PATH.
        return {_EXECUTORS: PYTHON, _DRIVER: PYTHON, "ROOKERY_PYTHON": sys.executable}


def _start(
    builder: SparkSession.Builder,
    master: str | None,
    settings: Mapping[str, str],
    packed: _PackedPython | None,
) -> SparkSession:
    given = _submitted_settings()
    is_elsewhere = given is None and master is not None and local_cores(master) is None
    sent = packed.settings(settings) if packed and is_elsewhere else {}
    if given is None:
        master = master or "local[*]"
        _prepare_environment(export_master(master, settings))
    tunings = choose_tunings(settings, given or {})
    ours = settings_for(master or (given or {}).get("spark.master", "local[*]"), tunings)
    made = {name: value for name, value in ours.items() if name not in (given or {})}
    chosen = {**made, **settings, **sent}
    _warn_of(_find_lacking(chosen), "the Spark that already runs here")
    environ = os.environ  # noqa: TID251 (it is sent on)
    path = python_path(tunings, environ.get(PATH))
    variables = {} if path is None else {PATH: path}
    if is_elsewhere and not _is_running():
        chosen |= shipment(environ, settings)
        variables |= packed.variables() if packed else {}
    for name, value in chosen.items():
        builder.config(name, value)
    if master:
        builder.master(master)
    with _environment(variables):
        spark = builder.getOrCreate()
    extend_planner(spark, [tuning.extension for tuning in tunings if tuning.extension])
    return spark


def _connect(
    builder: SparkSession.Builder, remote: str, settings: Mapping[str, str]
) -> SparkSession:
    # The server controls its own processes; a client can set only SQL settings.
    for name, value in {**SQL_SETTINGS, **CONNECT_SETTINGS, **settings}.items():
        if _is_sql(name) or name in CONNECT_SETTINGS:
            builder.config(name, value)
    try:
        spark = builder.remote(remote).getOrCreate()
    except ImportError as error:
        raise ConfigError(f"a Connect session needs more packages ({error}): {_INSTALL}") from error
    wanted = {**WORKER_SETTINGS, **_settings_of(choose_tunings(settings)), **settings}
    missing = _find_differing(wanted, lambda name: spark.conf.get(name, None))
    _warn_of(missing, f"the Connect server {remote}")
    return spark


def _builder() -> SparkSession.Builder:
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 (it takes a second)
    except ImportError as error:
        raise ConfigError(f"pyspark is not installed ({error}): {_INSTALL}") from error
    # A new builder: the class attribute `builder` is shared and keeps earlier settings.
    return SparkSession.Builder()


def _is_running() -> bool:
    from pyspark import SparkContext  # noqa: PLC0415

    return SparkContext._active_spark_context is not None


def _find_lacking(wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that can no longer be applied to a Spark that runs in this process."""
    from pyspark import SparkContext  # noqa: PLC0415

    running = SparkContext._active_spark_context
    return _find_differing(wanted, running.getConf().get) if running else {}


def _find_differing(wanted: Mapping[str, str], get: Callable[[str], str | None]) -> dict[str, str]:
    fixed = {name: value for name, value in wanted.items() if not _is_sql(name) and name != SETTING}
    return {name: value for name, value in fixed.items() if get(name) != value}


def _is_sql(name: str) -> bool:
    return name.startswith("spark.sql.")


def _submitted_settings() -> dict[str, str] | None:
    """Return the settings given to spark-submit, if it started this program."""
    if _SUBMITTED not in os.environ:  # noqa: TID251 (Spark sets it)
        return None
    from pyspark import SparkConf  # noqa: PLC0415

    return dict(SparkConf().getAll())


def _prepare_environment(variables: Mapping[str, str]) -> None:
    environ = os.environ  # noqa: TID251 (Spark's start scripts look there and nowhere else)
    environ.update(variables)
    environ["JAVA_HOME"] = str(find_java(environ))
    # Otherwise Spark uses the `python3` on the PATH, which may not have rookery installed.
    environ.setdefault(_EXECUTORS, sys.executable)
    # Spark uses this variable for data sources, which many shells set to a notebook.
    environ[_DRIVER] = environ[_EXECUTORS]


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables only for a Java process that is started within the context."""
    environ = os.environ  # noqa: TID251 (what Java and its children inherit)
    before = {name: environ.get(name) for name in variables}
    environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del environ[name]
            else:
                environ[name] = value


def _warn_of(missing: Mapping[str, str], where: str) -> None:
    if missing:
        flags = " ".join(f"--conf {name}={value}" for name, value in missing.items())
        text = f"{where} lacks settings that can only be made when it starts: {flags}"
        warnings.warn(text, RuntimeWarning, stacklevel=4)
