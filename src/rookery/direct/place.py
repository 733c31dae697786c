"""The location of a log that is read or written without a broker.

A cluster can have a name, so that its address and secrets are written in one place: a table
`[clusters.prod]` in a file, or the environment (`ROOKERY_CLUSTERS_PROD_STORE`).

`check_host` keeps tasks on the host of a cluster log that is a local file: hosts must not share
such a file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import quote

from rookery.config.load import DEFAULT, config_files, load
from rookery.config.sections import CLUSTERS, sections
from rookery.config.sources import TomlFile
from rookery.errors import ConfigError
from rookery.log.origin import LogLocation
from rookery.model.location import Location
from rookery.store.open import as_url

_HELP: Final = (
    "give the location of the log: store=s3://bucket/prefix (and cluster=etcd://… if the brokers "
    "agree there), or data=/folder of brokers on this host, or cluster=NAME of a table "
    "[clusters.NAME]"
)

_LAYOUTS: Final = ("rookery", "kafscale")
# A handle on a cluster log that is and stays empty.
_NO_LOG: Final = "memory:none"
_KAFKA: Final = "kafka"

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """The location of a cluster's log: URLs, or a name that each host's configuration resolves.

    It is sent to other processes. With a configured name, secrets stay on the host.
    """

    store: str = field(default="", metadata={"secret": True})
    """The object store of the log, such as s3://bucket/prefix."""
    cluster: str = field(default="", metadata={"secret": True})
    """The cluster log, such as etcd://host:2379 (default: in the store). Without a colon, it is the
    name of a cluster in the configuration."""
    namespace: str = "default"
    """The key prefix of this cluster's segments."""
    data: str = ""
    """The folder of brokers on this host, if there is no store."""
    layout: Literal["rookery", "kafscale"] = "rookery"
    """The format of the objects: Rookery's, or segments written by KafScale, without a cluster
    log."""
    log_dir: str = ""
    """A Kafka broker's own directory, or several separated by commas; it is read in place."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "store", as_url(self.store))
        object.__setattr__(self, "cluster", Location(self.cluster))

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ClusterAddress:
        """Return the place that options describe, by field name; other options are ignored.

        Raises:
            ConfigError: the options name no place, or contradict each other.
        """
        names = {option.name for option in fields(cls)}
        given: dict[str, Any] = {name: options[name] for name in names & options.keys()}
        if "logDir" in options:
            given["log_dir"] = options["logDir"]
        place = cls(**given)
        place.check()
        return place

    @property
    def is_listed(self) -> bool:
        """Whether a listing alone provides the state."""
        return self.layout != "rookery" or bool(self.log_dir)

    @property
    def has_times(self) -> bool:
        """Whether records can be found by timestamp."""
        return not self.is_listed or bool(self.log_dir)

    @property
    def log_dirs(self) -> list[Path]:
        """The log directories of the Kafka broker, if any."""
        return [Path(part.strip()).absolute() for part in self.log_dir.split(",") if part.strip()]

    @property
    def is_named(self) -> bool:
        """Whether `cluster` is the name of a configured cluster."""
        return bool(self.cluster) and ":" not in self.cluster

    def check(self) -> None:
        """Reject options that name no place, or two.

        Raises:
            ConfigError: the options must be changed; the text says how.
        """
        if self.log_dir:
            self._check_log_dirs()
            return
        if self.is_named and (self.store or self.data):
            raise ConfigError(
                f"cluster {self.cluster!r} is the name of a configured cluster, which says where "
                "its log is: leave store and data out, or write cluster as a URL"
            )
        if self.layout not in _LAYOUTS:
            raise ConfigError(f"layout={self.layout!r}: choose from {', '.join(_LAYOUTS)}")
        if self.is_listed and (self.data or (self.cluster and not self.is_named)):
            raise ConfigError(f"layout={self.layout}: name a store, and no cluster or data folder")
        if self.store and self.data:
            raise ConfigError(f"store and data: the log is in only one of them; {_HELP}")
        if not (self.is_named or self.store or self.data):
            raise ConfigError(f"no place is named; {_HELP}")

    def _check_log_dirs(self) -> None:
        if self.store or self.data or self.cluster or self.layout != "rookery":
            raise ConfigError("logDir: give no store, data, cluster or layout with it")
        for path in self.log_dirs:
            if not path.is_dir():
                raise ConfigError(f"logDir={self.log_dir!r}: there is no folder {path}")

    def origin(self) -> LogLocation:
        """Return the locations of store and cluster log, resolved on this host.

        Raises:
            ConfigError: they are not configured here, or are invalid.
        """
        self.check()
        if self.log_dir:
            names = ",".join(quote(str(path)) for path in self.log_dirs)
            return LogLocation("", f"kafkadir:{names}", _NO_LOG, _KAFKA)
        place = _load_cluster(self.cluster) if self.is_named else self
        place = place if place.is_listed else replace(place, layout=self.layout)
        if place.is_named:
            raise ConfigError(f"[clusters.{self.cluster}]: cluster must be a URL")
        place.check()
        cluster = _NO_LOG if place.is_listed else place.cluster
        origin = LogLocation(place.data, place.store, cluster, place.namespace)
        origin.check()
        return origin


def _load_cluster(name: str) -> ClusterAddress:
    """Return the place that a table [clusters.<name>] or the environment configures.

    Raises:
        ConfigError: there is no such cluster, or its settings are invalid.
    """
    files = config_files()
    if _NAME.fullmatch(name) is None:
        raise ConfigError(f"cluster {name[:80]!r}: a name has 1 to 64 of a-z, A-Z, 0-9, '_', '-'")
    loaded = load(ClusterAddress, f"{CLUSTERS}.{name}", files=files, sections=sections())
    if all(source == DEFAULT for source in loaded.sources.values()):
        raise ConfigError(_unknown(name, files))
    return loaded.settings


def _unknown(name: str, files: list[Path]) -> str:
    known = sorted({cluster for path in files for cluster in TomlFile(path).names(CLUSTERS)})
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    places = ", ".join(map(str, files)) or "no file (set ROOKERY_CONFIG, or write rookery.toml)"
    return f"cluster {name!r} is not configured: no table [{CLUSTERS}.{name}] in {places}{hint}"


_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def host_mark(place: ClusterAddress) -> str:
    """Return a mark that identifies this host's file; empty if the log serves all hosts."""
    path = place.origin().log_traits.path
    if path is None:
        return ""
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    try:
        status = path.stat()
    except OSError:
        return "absent"
    return f"{boot}/{status.st_dev}/{status.st_ino}"


def check_host(place: ClusterAddress, mark: str) -> None:
    """Refuse to read a folder on a host other than the one that planned the read.

    Raises:
        ConfigError: this is another host.
    """
    if mark and host_mark(place) != mark:
        raise ConfigError(
            f"{place.origin().name}: its cluster log is a file of the driver's host, which "
            "executors on other hosts cannot read; use master local[*], or brokers with a store "
            "(and etcd) that all hosts reach"
        )
