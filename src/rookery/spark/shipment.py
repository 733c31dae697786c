"""The configuration and the environment of this host, sent to the hosts of a Spark cluster.

A program names clusters (`cluster="prod"`), and the executors look these names up, too. So the
`rookery.toml` of the driver goes with it. It travels as a file, since Spark shows settings to all.
Variables such as `ROOKERY_CLUSTERS_PROD_STORE` travel as settings, which Spark then redacts. The
environment is an archive, which Spark unpacks in the folder of each executor.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rookery.config.load import DEFAULT_FILE, config_files
from rookery.errors import ConfigError
from rookery.spark.pack import FOLDER

_ARCHIVES: Final = "spark.archives"
_FILES: Final = "spark.files"
_REDACTION: Final = "spark.redaction.regex"
# Spark's own default, and the variables that are sent.
_REDACTED: Final = "(?i)secret|password|token|access[.]?key|rookery_clusters"
_VARIABLES: Final = "ROOKERY_CLUSTERS_"


def shipment(environ: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return the Spark settings that send the configuration along.

    Args:
        environ: the driver's environment.
        settings: what the user sets; their files and their redaction stay.

    Raises:
        ConfigError: the file that is named cannot be read.
    """
    made: dict[str, str] = {}
    for file in config_files(environ=environ):
        # Executors find it in their own folder, by its default name.
        sent = file if file.name == DEFAULT_FILE.name else _renamed(file)
        given = settings.get(_FILES, "")
        made[_FILES] = f"{given},{sent.absolute()}" if given else str(sent.absolute())
    variables = {name: value for name, value in environ.items() if name.startswith(_VARIABLES)}
    if variables:
        made |= {f"spark.executorEnv.{name}": value for name, value in variables.items()}
        made[_REDACTION] = settings.get(_REDACTION, _REDACTED)
    return made


def archive_setting(archive: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the Spark setting that sends a packed environment along, with the user's archives.

    Raises:
        ConfigError: the user sends another archive under its name.
    """
    given = settings.get(_ARCHIVES, "")
    if any(one.strip().endswith(f"#{FOLDER}") for one in given.split(",")):
        raise ConfigError(f"{_ARCHIVES}={given}: #{FOLDER} is Rookery's own: choose another name")
    sent = f"{archive.absolute().as_uri()}#{FOLDER}"
    return {_ARCHIVES: f"{given},{sent}" if given else sent}


def _renamed(file: Path) -> Path:
    """Copy a file under the default name, for as long as this process lives."""
    folder = Path(tempfile.mkdtemp(prefix="rookery-"))  # for this user alone
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        return Path(shutil.copy(file, folder / DEFAULT_FILE.name))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from error
