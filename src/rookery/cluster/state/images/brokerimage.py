"""The live brokers and other processes in a state's image."""

from __future__ import annotations

from rookery.cluster.events.brokerevents import EndpointRow
from rookery.cluster.state.brokers import Brokers, LiveBroker, LiveProcess, endpoints_of
from rookery.wire.message import BrokerId, Host, Message, Port, Uuid, field, i64


class BrokerImage(Message):
    """A live broker."""

    node_id: BrokerId
    incarnation: i64
    last_sequence: i64
    stamp_ms: i64
    host: Host
    port: Port
    rack: str | None
    process_id: Uuid
    endpoints: list[EndpointRow] = field(tag=0, factory=list)


class ProcessImage(Message):
    """A live process that is no broker."""

    incarnation: i64
    last_sequence: i64
    stamp_ms: i64
    purpose: str
    process_id: Uuid


def broker_images(brokers: Brokers) -> list[BrokerImage]:
    """Write the brokers."""
    return [
        BrokerImage(
            node_id=one.node_id,
            incarnation=one.incarnation,
            last_sequence=brokers.sequences[one.incarnation],
            stamp_ms=brokers.stamps[one.incarnation],
            host=one.host,
            port=one.port,
            rack=one.rack,
            process_id=one.process_id,
            endpoints=[EndpointRow(**endpoint._asdict()) for endpoint in one.endpoints],
        )
        for _, one in sorted(brokers.by_node.items())
    ]


def process_images(brokers: Brokers) -> list[ProcessImage]:
    """Write the processes that are no brokers."""
    return [
        ProcessImage(
            incarnation=one.incarnation,
            last_sequence=brokers.sequences[one.incarnation],
            stamp_ms=brokers.stamps[one.incarnation],
            purpose=one.purpose,
            process_id=one.process_id,
        )
        for one in brokers.processes.values()
    ]


def fill_brokers(brokers: Brokers, live: list[BrokerImage], processes: list[ProcessImage]) -> None:
    """Read them all."""
    for process in processes:
        brokers.processes[process.incarnation] = LiveProcess(
            process.incarnation, process.purpose, process.process_id
        )
    for one in live:
        brokers.by_node[one.node_id] = LiveBroker(
            one.node_id,
            one.incarnation,
            one.host,
            one.port,
            one.rack,
            one.process_id,
            endpoints_of(one.endpoints),
        )
    everyone: list[ProcessImage | BrokerImage] = [*processes, *live]
    for image in everyone:
        brokers.sequences[image.incarnation] = image.last_sequence
        brokers.stamps[image.incarnation] = image.stamp_ms
