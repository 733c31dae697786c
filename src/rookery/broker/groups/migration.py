"""From one group protocol to the other."""

from __future__ import annotations

from rookery.broker.groups.classic import Classic
from rookery.broker.groups.consumer import Consumer
from rookery.broker.groups.machine import Machine
from rookery.broker.groups.rebalance import Rebalance
from rookery.broker.groups.settings import ClassicSettings, ConsumerSettings


def other_protocol(
    group_id: str, machine: Machine, classic: ClassicSettings, consumer: ConsumerSettings
) -> Machine:
    """Return a machine of the other protocol for a group without members; its numbers go on."""
    if isinstance(machine, Consumer):
        group = Rebalance(group_id, classic)
        group.generation = machine.epoch
        return Classic(group)
    generation = machine.generation if isinstance(machine, Classic) else 0
    return Consumer.new(group_id, consumer, generation)
