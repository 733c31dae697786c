"""Options for the location of Spark, and for the Python environment of its tasks."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.cli.options.fields import option, repeated, switch
from rookery.cli.options.values import setting


@dataclass(frozen=True, kw_only=True)
class SparkOptions:
    """The master of a session, its settings, and the environment of its tasks."""

    master: str | None = option(
        "--master",
        metavar="URL",
        help="the Spark master, such as spark://head:7077 (default: local[*])",
    )
    conf: tuple[tuple[str, str], ...] = repeated(
        "--conf",
        type=setting,
        metavar="NAME=VALUE",
        help="a Spark setting, such as spark.executor.memory=4g; may be repeated",
    )
    archive: str | None = option(
        "--archive",
        at_most_one_of="environment",
        metavar="FILE",
        help="the environment for other hosts that `rookery spark pack` wrote (default: pack "
        "this environment if it has changed)",
    )
    installed: bool = switch(
        "--installed",
        at_most_one_of="environment",
        help="send no environment, because all hosts have it at the same path",
    )
