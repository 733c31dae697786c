"""The metadata of a cluster: the result of a snapshot and the records after it.

    image = MetadataImage()
    for entry in entries:        # of a snapshot, then of the log from the snapshot's end on
        image.apply(entry)

Records between BeginTransactionRecord and EndTransactionRecord take effect only at the end record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from rookery.formats.kraft.entries import ControlEntry, MetadataEntry
from rookery.formats.kraft.topics import MetadataTopics
from rookery.model.control import ControlRecordType
from rookery.wire.control import KRaftVersionRecord, VotersRecord
from rookery.wire.kraft import cluster, security
from rookery.wire.kraft.brokers import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from rookery.wire.kraft.topics import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from rookery.wire.message import Message

METADATA_VERSION: Final = "metadata.version"

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
"""The resource types of a ConfigRecord."""


@dataclass(slots=True)
class MetadataImage:
    """The complete metadata of a KRaft cluster, as of `next_offset`."""

    topics: MetadataTopics = field(default_factory=MetadataTopics)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    """Settings by resource type and name; the name is empty for the defaults of all brokers."""
    features: dict[str, int] = field(default_factory=dict)
    brokers: dict[int, RegisterBrokerRecord] = field(default_factory=dict)
    controllers: dict[int, RegisterControllerRecord] = field(default_factory=dict)
    next_producer_id: int = 0
    quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = field(default_factory=dict)
    scram: dict[tuple[int, str], security.UserScramCredentialRecord] = field(default_factory=dict)
    """SCRAM credentials by mechanism (1 SHA-256, 2 SHA-512) and user."""
    acls: dict[bytes, security.AccessControlEntryRecord] = field(default_factory=dict)
    tokens: dict[str, security.DelegationTokenRecord] = field(default_factory=dict)
    voters: VotersRecord | None = None
    kraft_version: int = 0
    next_offset: int = 0
    """The offset after the last record that was applied."""
    epoch: int = 0
    """The controller's epoch at the last record that was applied."""
    skipped: Counter[tuple[int, int]] = field(default_factory=Counter)
    """The number of skipped records of unknown type and version."""
    orphans: int = 0
    """Records about a topic, partition or broker that the log never created."""
    _pending: list[MetadataEntry] | None = None

    @property
    def metadata_version(self) -> int:
        """The level of `metadata.version`, which decides how records are written."""
        return self.features.get(METADATA_VERSION, 1)

    @property
    def is_in_transaction(self) -> bool:
        """Whether the records end within a transaction."""
        return self._pending is not None

    def topic_configs(self, name: str) -> dict[str, str]:
        """Return the settings of a topic that differ from the default."""
        return self.configs.get((TOPIC, name), {})

    def apply(self, entry: MetadataEntry | ControlEntry) -> None:
        """Apply the next record."""
        self.next_offset, self.epoch = entry.offset + 1, entry.epoch
        if isinstance(entry, ControlEntry):
            self._control(entry)
        elif isinstance(entry.message, cluster.BeginTransactionRecord):
            self._pending = []
        elif isinstance(entry.message, cluster.AbortTransactionRecord):
            self._pending = None
        elif isinstance(entry.message, cluster.EndTransactionRecord):
            pending, self._pending = self._pending or [], None
            for earlier in pending:
                self._take(earlier)
        elif self._pending is not None:
            self._pending.append(entry)
        else:
            self._take(entry)

    def records(self) -> Iterator[Message]:
        """Yield everything as records, in an order in which they can be applied."""
        for name, level in sorted(
            self.features.items(), key=lambda item: item[0] != METADATA_VERSION
        ):
            yield cluster.FeatureLevelRecord(name=name, feature_level=level)
        yield from self.controllers.values()
        yield from self.brokers.values()
        for topic in self.topics.by_id.values():
            yield topic.record()
            for number, partition in topic.partitions.items():
                yield partition.record(topic.topic_id, number)
        yield from self._settings()
        yield from self.scram.values()
        yield from self.acls.values()
        yield from self.tokens.values()
        if self.next_producer_id:
            yield cluster.ProducerIdsRecord(broker_id=-1, next_producer_id=self.next_producer_id)

    def _settings(self) -> Iterator[Message]:
        for (type_, resource), values in self.configs.items():
            for name, value in values.items():
                yield cluster.ConfigRecord(
                    resource_type=type_, resource_name=resource, name=name, value=value
                )
        for entity_key, rates in self.quotas.items():
            entity = [
                cluster.EntityData(entity_type=kind, entity_name=name) for kind, name in entity_key
            ]
            for key, rate in rates.items():
                yield cluster.ClientQuotaRecord(entity=entity, key=key, value=rate, remove=False)

    def _control(self, entry: ControlEntry) -> None:
        match entry.message:
            case KRaftVersionRecord() as record:
                self.kraft_version = record.k_raft_version
            case VotersRecord() as record:
                self.voters = record
            case _ if entry.type is ControlRecordType.LEADER_CHANGE:
                self._pending = None  # a new controller drops an unfinished transaction
            case _:
                pass

    def _take(self, entry: MetadataEntry) -> None:
        if entry.message is None:
            self.skipped[entry.type, entry.version] += 1
            return
        if _RULES[type(entry.message)](self, entry.message) is False:
            self.orphans += 1

    def _config(self, record: cluster.ConfigRecord) -> None:
        values = self.configs.setdefault((record.resource_type, record.resource_name), {})
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if not values:
            del self.configs[record.resource_type, record.resource_name]

    def _feature(self, record: cluster.FeatureLevelRecord) -> None:
        if record.feature_level:
            self.features[record.name] = record.feature_level
        else:
            self.features.pop(record.name, None)

    def _quota(self, record: cluster.ClientQuotaRecord) -> None:
        entity_key = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
        rates = self.quotas.setdefault(entity_key, {})
        if record.remove:
            rates.pop(record.key, None)
        else:
            rates[record.key] = record.value
        if not rates:
            del self.quotas[entity_key]

    def _producer_ids(self, record: cluster.ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _remove_topic(self, record: RemoveTopicRecord) -> bool:
        name = self.topics.remove(record.topic_id)
        if name is not None and name not in self.topics.by_name:
            self.configs.pop((TOPIC, name), None)
        return name is not None

    def _register(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = record

    def _unregister(self, record: UnregisterBrokerRecord) -> bool:
        return self.brokers.pop(record.broker_id, None) is not None

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> bool:
        known = self.brokers.get(record.broker_id)
        if known is None:
            return False
        changes: dict[str, object] = {}
        if record.fenced:
            changes["fenced"] = record.fenced > 0
        if record.in_controlled_shutdown:
            changes["in_controlled_shutdown"] = record.in_controlled_shutdown > 0
        if record.log_dirs:
            changes["log_dirs"] = record.log_dirs
        if record.cordoned_log_dirs is not None:
            changes["cordoned_log_dirs"] = record.cordoned_log_dirs
        self.brokers[record.broker_id] = known.replace(**changes)
        return True

    def _fence(self, record: FenceBrokerRecord | UnfenceBrokerRecord) -> bool:
        known = self.brokers.get(record.id_)
        if known is None:
            return False
        fenced = isinstance(record, FenceBrokerRecord)
        self.brokers[record.id_] = known.replace(fenced=fenced)
        return True

    def _controller(self, record: RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = record

    def _scram(self, record: security.UserScramCredentialRecord) -> None:
        self.scram[record.mechanism, record.name] = record

    def _unscram(self, record: security.RemoveUserScramCredentialRecord) -> bool:
        return self.scram.pop((record.mechanism, record.name), None) is not None

    def _acl(self, record: security.AccessControlEntryRecord) -> None:
        self.acls[record.id_] = record

    def _unacl(self, record: security.RemoveAccessControlEntryRecord) -> bool:
        return self.acls.pop(record.id_, None) is not None

    def _token(self, record: security.DelegationTokenRecord) -> None:
        self.tokens[record.token_id] = record

    def _untoken(self, record: security.RemoveDelegationTokenRecord) -> bool:
        return self.tokens.pop(record.token_id, None) is not None

    def _nothing(self, record: Message) -> None:
        """Accept a record that changes nothing here."""


_Rule = Callable[[MetadataImage, Any], bool | None]
_RULES: Final[dict[type[Message], _Rule]] = {
    TopicRecord: lambda image, record: image.topics.create(record),
    PartitionRecord: lambda image, record: image.topics.place(record),
    PartitionChangeRecord: lambda image, record: image.topics.change(record),
    ClearElrRecord: lambda image, record: image.topics.clear_elr(record),
    RemoveTopicRecord: MetadataImage._remove_topic,
    cluster.ConfigRecord: MetadataImage._config,
    cluster.FeatureLevelRecord: MetadataImage._feature,
    cluster.ClientQuotaRecord: MetadataImage._quota,
    cluster.ProducerIdsRecord: MetadataImage._producer_ids,
    cluster.NoOpRecord: MetadataImage._nothing,
    cluster.ZkMigrationStateRecord: MetadataImage._nothing,
    RegisterBrokerRecord: MetadataImage._register,
    UnregisterBrokerRecord: MetadataImage._unregister,
    FenceBrokerRecord: MetadataImage._fence,
    UnfenceBrokerRecord: MetadataImage._fence,
    BrokerRegistrationChangeRecord: MetadataImage._change_broker,
    RegisterControllerRecord: MetadataImage._controller,
    security.UserScramCredentialRecord: MetadataImage._scram,
    security.RemoveUserScramCredentialRecord: MetadataImage._unscram,
    security.AccessControlEntryRecord: MetadataImage._acl,
    security.RemoveAccessControlEntryRecord: MetadataImage._unacl,
    security.DelegationTokenRecord: MetadataImage._token,
    security.RemoveDelegationTokenRecord: MetadataImage._untoken,
}
