"""Committed offsets of groups that are imported: more of them than an entry holds."""

from __future__ import annotations

from pathlib import Path

from rookery.broker.settings import BrokerSettings
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress
from rookery.formats.logfile.groups import LoggedGroup, LoggedGroups, LoggedOffset
from rookery.logdir.importer.report import ImportReport
from rookery.logdir.importer.states import import_groups
from rookery.model.partition import TopicPartition
from rookery.testing.servedbroker import ServedBroker
from tests.broker.raw import create

PARTITIONS = 600
# Kafka's default limit (`offset.metadata.max.bytes`).
METADATA = "é" * 2_048


async def test_offsets_with_long_metadata_are_imported_in_several_entries(tmp_path: Path) -> None:
    with ServedBroker(tmp_path, BrokerSettings(durability="os")) as broker:
        create(broker, "t", PARTITIONS)
    places = [TopicPartition("t", index) for index in range(PARTITIONS)]
    offsets = {place: LoggedOffset(7, metadata=METADATA) for place in places}
    report = ImportReport()

    async with DirectLog.open(ClusterAddress(data=str(tmp_path))) as target:
        ids = {"t": target.state.topics.by_name["t"].id}
        groups = LoggedGroups({"g": LoggedGroup(offsets)})
        await import_groups(target, groups, ids, report)

        group = target.state.groups.by_id["g"]
        assert [commit.offset for _, _, commit in group.each_offset()] == [7] * PARTITIONS
    assert (report.groups, report.offsets) == (1, PARTITIONS)
