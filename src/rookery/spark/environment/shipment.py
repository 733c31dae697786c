"""Sends the configuration and the environment of this host to the hosts of a Spark cluster.

A program names clusters (`cluster="prod"`), and the executors resolve these names too. So the
driver's `rookery.toml` is sent to them. It is sent as a file, because Spark shows settings to all
users. Variables such as `ROOKERY_CLUSTERS_PROD_STORE` are sent as settings, which Spark then
redacts. The environment is an archive that Spark unpacks in the folder of each executor.
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
from rookery.spark.environment.pack import FOLDER

_ARCHIVES: Final = "spark.archives"
_FILES: Final = "spark.files"
_REDACTION: Final = "spark.redaction.regex"
# Spark's default, plus the variables that are sent.
_REDACTED: Final = "(?i)secret|password|token|access[.]?key|rookery_clusters"
_VARIABLES: Final = "ROOKERY_CLUSTERS_"


def shipment(environ: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return the Spark settings that send the configuration to executors.

    Args:
        environ: the driver's environment.
        settings: the user's settings; their files and redaction are kept.

    Raises:
        ConfigError: the configuration file cannot be read.
    """
    made: dict[str, str] = {}
    for file in config_files(environ=environ):
        # Executors read it from their own folder, by its default name.
        sent = file if file.name == DEFAULT_FILE.name else _rename(file)
        given = settings.get(_FILES, "")
        made[_FILES] = f"{given},{sent.absolute()}" if given else str(sent.absolute())
    variables = {name: value for name, value in environ.items() if name.startswith(_VARIABLES)}
    if variables:
        made |= {f"spark.executorEnv.{name}": value for name, value in variables.items()}
        made[_REDACTION] = settings.get(_REDACTION, _REDACTED)
    return made


def archive_setting(archive: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the Spark setting that sends a packed environment and the user's archives.

    Raises:
        ConfigError: the user sends another archive with the same name.
    """
    given = settings.get(_ARCHIVES, "")
    if any(archive_url.strip().endswith(f"#{FOLDER}") for archive_url in given.split(",")):
        raise ConfigError(f"{_ARCHIVES}={given}: #{FOLDER} is Rookery's own: choose another name")
    sent = f"{archive.absolute().as_uri()}#{FOLDER}"
    return {_ARCHIVES: f"{given},{sent}" if given else sent}


def _rename(file: Path) -> Path:
    """Copy a file to the default name; the copy exists until this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="rookery-"))  # readable by this user only
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        return Path(shutil.copy(file, folder / DEFAULT_FILE.name))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from error
