"""One broker's log directories, read-only: their owner, and every partition in them.

    directory = LogDirectory.open([Path("/var/lib/kafka")])
    for name, log in directory.partitions.items(): ...

Nothing is written, locked or repaired. Damage is listed in `damage`, with file, position and
offset, and the rest stays readable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rookery.errors import ConfigError, Corrupt
from rookery.formats.kraft.entries import METADATA_FOLDER
from rookery.formats.kraft.image import MetadataImage
from rookery.formats.logfile.checkpoints import parse_offsets
from rookery.formats.logfile.identity import MetaProperties, parse_meta
from rookery.formats.logfile.names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    FolderName,
    parse_folder_name,
)
from rookery.logdir.damage import Damage
from rookery.logdir.files import read_text
from rookery.logdir.metadata import MetadataLog
from rookery.logdir.partition import Checkpoints, PartitionLog
from rookery.model.partition import TopicPartition


@dataclass(slots=True)
class LogDirectory:
    """Everything that one broker has on its disks."""

    paths: tuple[Path, ...]
    meta: MetaProperties | None = None
    """The owner of the directories; None if no `meta.properties` is readable."""
    metadata: MetadataLog | None = None
    """The cluster's metadata, if one of the directories contains it."""
    partitions: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    leftovers: dict[Path, FolderName] = field(default_factory=dict)
    """Ignored folders: deleted, not yet moved here, or unknown to the cluster."""
    is_clean: bool = True
    """Whether Kafka was shut down cleanly."""
    _damage: list[Damage] = field(default_factory=list)

    @classmethod
    def open(cls, paths: Sequence[Path]) -> LogDirectory:
        """Read the contents of the directories; of the logs only their ends.

        Raises:
            ConfigError: a path is not a log directory of Kafka, or the paths belong to different
                brokers.
        """
        directory = cls(tuple(paths))
        folders: list[tuple[Path, FolderName]] = []
        for path in paths:
            folders += directory._look(path)
        if directory.meta is None and not folders and directory.metadata is None:
            names = ", ".join(map(str, paths))
            raise ConfigError(f"{names}: not a log directory of Kafka; name the value of log.dirs")
        checkpoints = {path: directory._checkpoints(path) for path in paths}
        for folder, name in folders:
            directory._add(folder, name, checkpoints[folder.parent].get(name.partition))
        directory.partitions = dict(sorted(directory.partitions.items()))
        return directory

    @property
    def image(self) -> MetadataImage:
        """The content of the cluster's metadata; empty if there is none."""
        return self.metadata.image if self.metadata is not None else MetadataImage()

    @property
    def damage(self) -> list[Damage]:
        """The known damage; `check` finds all of it."""
        damage = list(self._damage)
        if self.metadata is not None:
            damage += self.metadata.damage
        return damage + [defect for log in self.partitions.values() for defect in log.damage]

    def check(self) -> None:
        """Read every byte of every log, so that `damage` is complete."""
        for log in self.partitions.values():
            log.check()

    def topic_id(self, name: str) -> bytes | None:
        """Return a topic's id, from the metadata or from its partitions' own files."""
        topic = self.image.topics.by_name.get(name)
        if topic is not None:
            return topic.topic_id
        logs = (log for place, log in self.partitions.items() if place.topic == name)
        return next((log.topic_id for log in logs if log.topic_id is not None), None)

    def _look(self, path: Path) -> list[tuple[Path, FolderName]]:
        """Read the owner of a directory; return the folders of its partitions."""
        if not path.is_dir():
            raise ConfigError(f"{path}: is not a directory")
        self._identify(path)
        self.is_clean = self.is_clean and (path / CLEAN_SHUTDOWN).exists()
        folders = []
        for folder in sorted(path.iterdir()):
            if folder.name == METADATA_FOLDER and folder.is_dir():
                self.metadata = MetadataLog(folder, is_clean=False)
                continue
            name = parse_folder_name(folder.name)
            if name is None or not folder.is_dir():
                continue
            if name.stage is not None:
                self.leftovers[folder] = name
            else:
                folders.append((folder, name))
        return folders

    def _identify(self, path: Path) -> None:
        file = path / META_PROPERTIES
        try:
            text = read_text(file)
            if text is None:
                self._damage.append(Damage(file, "is missing: whose directory it is is not known"))
                return
            meta = parse_meta(text, str(file))
        except Corrupt as error:
            self._note(file, error)
            return
        if self.meta is not None and self.meta[:2] != meta[:2]:
            raise ConfigError(
                f"{path} belongs to node {meta.node_id} of cluster {meta.cluster_id}, "
                f"{self.paths[0]} to node {self.meta.node_id} of {self.meta.cluster_id}; "
                "open the directories of one broker at a time"
            )
        self.meta = self.meta or meta

    def _checkpoints(self, path: Path) -> dict[TopicPartition, Checkpoints]:
        checkpoints: dict[TopicPartition, Checkpoints] = {}
        for name, field_name in _CHECKPOINTS.items():
            for partition, offset in self._offsets(path / name).items():
                known = checkpoints.get(partition, Checkpoints())
                checkpoints[partition] = known._replace(**{field_name: offset})
        return checkpoints

    def _offsets(self, file: Path) -> dict[TopicPartition, int]:
        try:
            text = read_text(file)
            return {} if text is None else parse_offsets(text, str(file))
        except Corrupt as error:
            self._note(file, error)
            return {}

    def _add(self, folder: Path, name: FolderName, checkpoints: Checkpoints | None) -> None:
        log = PartitionLog(
            folder,
            name.partition,
            checkpoints or Checkpoints(),
            is_clean=self.is_clean,
            is_alone=self._is_alone(name.partition),
        )
        if self._is_stray(log):
            self.leftovers[folder] = name
        elif name.partition in self.partitions:
            other = self.partitions[name.partition].folder
            self._damage.append(Damage(folder, f"holds the same partition as {other}"))
        else:
            self.partitions[name.partition] = log

    def _is_alone(self, name: TopicPartition) -> bool:
        """Whether this broker alone decides which records of a partition are committed."""
        topic = self.image.topics.by_name.get(name.topic)
        partition = topic.partitions.get(name.partition) if topic is not None else None
        return (
            partition is not None
            and self.meta is not None
            and (partition.isr == (self.meta.node_id,))
        )

    def _is_stray(self, log: PartitionLog) -> bool:
        """Whether the cluster does not know a partition, because its topic was deleted."""
        topics = self.image.topics
        if not topics.by_id or log.topic_id is None or self._has_lost_metadata:
            return False
        topic = topics.by_id.get(log.topic_id)
        return topic is None or log.name.partition not in topic.partitions

    @property
    def _has_lost_metadata(self) -> bool:
        """Whether the cluster's metadata may contain more than is readable."""
        damage = self.metadata.damage if self.metadata is not None else []
        return any(not defect.is_torn for defect in damage)

    def _note(self, file: Path, error: Corrupt) -> None:
        self._damage.append(Damage(file, error.reason))


_CHECKPOINTS: Final = {
    LOG_STARTS: "log_start",
    HIGH_WATERMARKS: "high_watermark",
    RECOVERY_POINTS: "recovery_point",
    CLEANER_OFFSETS: "first_dirty",
}
