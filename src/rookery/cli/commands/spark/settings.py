"""`rookery spark settings`: prints Spark settings for `spark-defaults.conf`."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.fields import option


@dataclass(frozen=True, kw_only=True)
class ShowSparkSettings(CommandArguments):
    """The master to print the settings for."""

    master: str = option(
        "--master",
        default="yarn",
        metavar="URL",
        help="the Spark master that the settings are for (default: %(default)s)",
    )
    tuning: str = option(
        "--tuning",
        default="",
        metavar="NAMES",
        help="include the settings of these tunings, such as worker-daemon,arrow-unchecked, or all",
    )


def run(args: ShowSparkSettings) -> int:
    """Print settings as a properties file, or as JSON."""
    from rookery.spark.sparksession import choose_tunings, settings_for
    from rookery.spark.tuning.choice import SETTING

    settings = settings_for(args.master, choose_tunings({SETTING: args.tuning}))
    if args.json:
        print_json(settings)
    else:
        for name, value in settings.items():
            print(f"{name} {value}")
    return 0


COMMAND = Command(
    arguments=ShowSparkSettings,
    run=run,
    summary="Show the Spark settings that speed up Python sources, for spark-defaults.conf.",
    example="rookery spark settings > conf/spark-defaults.conf",
)
