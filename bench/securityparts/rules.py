"""What a small produce costs a broker with many access rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from objectparts.figures import Figure
from scale import Client, broker, cpu, exchange, make_topic

from rookery.testing.broker import BrokerProcess
from securityparts.scene import Scene

GOAL = 1.1
CHUNK = 500
CONNECTIONS, IN_FLIGHT = 4, 50
TOPIC = "small"
"""The topic of `scale.exchange`."""
ANONYMOUS = "User:ANONYMOUS"
GUARDED = ("--authorizer", "acls", "--allow-everyone-if-no-acl")
TURNS = 5


def rules(scene: Scene) -> None:
    """Measure three brokers in turns: without an authorizer, without rules, with all rules.

    The goal is about the number of rules. What an authorizer costs at all is reported next to it.
    """
    with ExitStack() as stack:
        plain, empty, full = (
            stack.enter_context(broker("--durability", "os", *flags))
            for flags in ((), GUARDED, GUARDED)
        )
        for served in (plain, empty, full):
            make_topic(served, TOPIC, 4)
        scene.figures.say(f"rules: creating {scene.extent.rules:,}")
        create_rules(full, scene.extent.rules)
        costs: dict[BrokerProcess, list[float]] = {plain: [], empty: [], full: []}
        seconds = scene.extent.seconds / TURNS
        for turn in range(TURNS):
            # The last one of a turn is the first one of the next: none is always after another.
            order = [*costs] if turn % 2 else [*reversed(costs)]
            for served in order:
                costs[served].append(measure(served, seconds))
        without, unruled, ruled = (median(samples) for samples in costs.values())
    for what, peer, goal in (("no rules", unruled, GOAL), ("no authorizer", without, None)):
        title = f"CPU of a small produce, {scene.extent.rules:,} rules against {what}"
        scene.figures.add(
            Figure("rules", title, ruled, "µs", peer, floor=goal, is_less_better=True)
        )


def measure(served: BrokerProcess, seconds: float) -> float:
    """Return the CPU of the broker per request, in microseconds."""
    clients = [Client(served) for _ in range(CONNECTIONS)]
    exchange(clients, IN_FLIGHT, seconds / 4)
    before = cpu(served.pid)
    count = exchange(clients, IN_FLIGHT, seconds)
    spent = cpu(served.pid) - before
    for client in clients:
        client.socket.close()
    return spent / count * 1e6


def create_rules(served: BrokerProcess, count: int) -> None:
    """Create rules of every kind; the last one allows the requests that are measured."""
    admin = AdminClient({"bootstrap.servers": served.bootstrap, "log_level": 0})
    made = [*(make_rule(number) for number in range(count - 1)), allowing_rule()]
    for chunk in chunks(made):
        for done in admin.create_acls(chunk).values():
            done.result(60)


def chunks(made: list[AclBinding]) -> Iterator[list[AclBinding]]:
    """Divide the rules into requests."""
    for start in range(0, len(made), CHUNK):
        yield made[start : start + CHUNK]


def make_rule(number: int) -> AclBinding:
    """Return one of five kinds: other topics, prefixes of many lengths, the same topic, groups."""
    user, other = f"User:user-{number % 1000}", f"topic-{number}"
    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    prefix = f"{'team-' * (number % 7)}{number:x}"
    kinds = (
        (ResourceType.TOPIC, other, literal, user, AclOperation.READ, AclPermissionType.ALLOW),
        (ResourceType.TOPIC, prefix, prefixed, user, AclOperation.ALL, AclPermissionType.ALLOW),
        (ResourceType.TOPIC, TOPIC, literal, f"User:other-{number}", AclOperation.WRITE,
         AclPermissionType.DENY),
        (ResourceType.TOPIC, other, literal, ANONYMOUS, AclOperation.WRITE,
         AclPermissionType.ALLOW),
        (ResourceType.GROUP, other, literal, user, AclOperation.READ, AclPermissionType.ALLOW),
    )  # fmt: skip
    kind, name, pattern, principal, operation, permission = kinds[number % len(kinds)]
    return AclBinding(kind, name, pattern, principal, "*", operation, permission)


def allowing_rule() -> AclBinding:
    """Return the rule that allows the requests that are measured."""
    return AclBinding(
        ResourceType.TOPIC, TOPIC, ResourcePatternType.LITERAL, ANONYMOUS, "*",
        AclOperation.WRITE, AclPermissionType.ALLOW,
    )  # fmt: skip
