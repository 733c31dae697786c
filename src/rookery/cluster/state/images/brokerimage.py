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
    """A live process that is not a broker."""

    incarnation: i64
    last_sequence: i64
    stamp_ms: i64
    purpose: str
    process_id: Uuid


def broker_images(brokers: Brokers) -> list[BrokerImage]:
    """Write the brokers."""
    return [
        BrokerImage(
            node_id=broker.node_id,
            incarnation=broker.incarnation,
            last_sequence=brokers.sequences[broker.incarnation],
            stamp_ms=brokers.stamps[broker.incarnation],
            host=broker.host,
            port=broker.port,
            rack=broker.rack,
            process_id=broker.process_id,
            endpoints=[EndpointRow(**endpoint._asdict()) for endpoint in broker.endpoints],
        )
        for _, broker in sorted(brokers.by_node.items())
    ]


def process_images(brokers: Brokers) -> list[ProcessImage]:
    """Write the processes that are not brokers."""
    return [
        ProcessImage(
            incarnation=process.incarnation,
            last_sequence=brokers.sequences[process.incarnation],
            stamp_ms=brokers.stamps[process.incarnation],
            purpose=process.purpose,
            process_id=process.process_id,
        )
        for process in brokers.processes.values()
    ]


def fill_brokers(brokers: Brokers, live: list[BrokerImage], processes: list[ProcessImage]) -> None:
    """Read them all."""
    for process in processes:
        brokers.processes[process.incarnation] = LiveProcess(
            process.incarnation, process.purpose, process.process_id
        )
    for broker in live:
        brokers.by_node[broker.node_id] = LiveBroker(
            broker.node_id,
            broker.incarnation,
            broker.host,
            broker.port,
            broker.rack,
            broker.process_id,
            endpoints_of(broker.endpoints),
        )
    everyone: list[ProcessImage | BrokerImage] = [*processes, *live]
    for image in everyone:
        brokers.sequences[image.incarnation] = image.last_sequence
        brokers.stamps[image.incarnation] = image.stamp_ms
