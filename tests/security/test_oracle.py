"""Our decisions compared with those of Kafka's own classes."""

from __future__ import annotations

import random
from base64 import b64encode

import pytest

from rookery.security.acl import AclBinding, format_host
from rookery.security.aclrules import AclRules
from rookery.security.quotameter import RateMeter, TokenBucket
from rookery.testing.java import Java
from tests.security.aclcases import GRID, POOL, SUPER_USER
from tests.security.dercases import INVALID_RULES, NAMES, RULES, name
from tests.security.oracle import SecurityOracle

pytestmark = [pytest.mark.kafka]


@pytest.fixture(scope="session")
def java() -> Java:
    """Java with Kafka's jars."""
    return Java.find()


@pytest.fixture(scope="module")
def oracle(java: Java, tmp_path_factory: pytest.TempPathFactory) -> SecurityOracle:
    return SecurityOracle.compile(java, tmp_path_factory.mktemp("classes"))


# A rule for the literal `*` covers every name. Kafka does not apply it to longer names that begin
# with an asterisk, not even if it denies: it takes `*` for a literal prefix of such a name.
COMPARED = [ask for ask in GRID if not ask.resource.name.startswith("*x")]


def _fields(rule: AclBinding) -> list[object]:
    return [
        rule.resource_type,
        rule.pattern_type,
        rule.name,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission,
    ]


def test_decisions_equal_those_of_the_standard_authorizer(oracle: SecurityOracle) -> None:
    chance = random.Random(20)
    cases = [
        (list(dict.fromkeys(chance.choices(POOL, k=chance.randrange(9)))), bool(number % 2))
        for number in range(1_000)
    ]
    questions = [
        {
            "kind": "acl",
            "super_users": SUPER_USER,
            "open": str(is_open).lower(),
            "rules": [_fields(rule) for rule in rules],
            "asks": [[*ask[:3], *ask.resource] for ask in COMPARED],
        }
        for rules, is_open in cases
    ]

    for (rules, is_open), answers in zip(cases, oracle.ask(questions), strict=True):
        index = AclRules(rules, super_users=[SUPER_USER], allow_everyone_if_no_acl=is_open)
        ours = []
        for ask in COMPARED:
            ours.append(index.decide(*ask).allowed)
            ours.append(index.allows_any(*ask[:3], ask.resource.type))
        differences = [
            (ask, theirs)
            for ask, mine, theirs in zip(
                [ask for ask in COMPARED for _ in range(2)], ours, answers, strict=True
            )
            if mine is not theirs
        ]
        assert not differences, (rules, is_open)


def test_addresses_equal_those_of_java(oracle: SecurityOracle) -> None:
    hosts = ["10.0.0.1", "::1", "2001:DB8::00ff", "::ffff:10.0.0.1", "::", "1::2:0:0:3", "fe80::a"]

    (answers,) = oracle.ask([{"kind": "hosts", "hosts": hosts}])

    assert [format_host(host) for host in hosts] == answers


def test_names_of_certificates_equal_those_of_java(oracle: SecurityOracle) -> None:
    encoded = [b64encode(name(parts)).decode() for parts, _ in NAMES]

    (answers,) = oracle.ask([{"kind": "names", "names": encoded}])

    assert answers == [text for _, text in NAMES]


def test_mapping_rules_equal_those_of_kafka(oracle: SecurityOracle) -> None:
    questions = [{"kind": "rules", "rules": rules, "names": [text]} for rules, text, _ in RULES]

    answers = oracle.ask(questions)

    assert [answer for (answer,) in answers] == [expected for *_, expected in RULES]


def test_kafka_refuses_the_same_rules(oracle: SecurityOracle) -> None:
    questions = [{"kind": "rules", "rules": rules, "names": []} for rules in INVALID_RULES]

    assert oracle.ask(questions) == [["invalid"]] * len(questions)


def _events(chance: random.Random) -> list[list[float]]:
    """Make amounts at times that lie close together, a second apart, or far apart."""
    now = 1_700_000_000_000 + chance.randrange(2_000)
    events: list[list[float]] = []
    for _ in range(60):
        now += chance.choice([0, 1, 17, 250, 999, 1_000, 1_001, 3_000, 11_000, 60_000])
        events.append([now, chance.choice([0.0, 1.0, 10.0, 500.0, 1e6, 0.25, -1.0])])
    return events


LIMITS = (0.5, 1.0, 7.0, 100.0, 1e6)


def test_throttle_times_equal_those_of_kafkas_rate(oracle: SecurityOracle) -> None:
    chance = random.Random(7)
    cases = [(chance.choice(LIMITS), _events(chance)) for _ in range(300)]

    answers = oracle.ask(
        [{"kind": "rate", "limit": limit, "events": events} for limit, events in cases]
    )

    for (limit, events), expected in zip(cases, answers, strict=True):
        meter = RateMeter()
        assert [meter.record(amount, int(now), limit) for now, amount in events] == expected


@pytest.mark.parametrize("strict", [False, True])
def test_throttle_times_equal_those_of_kafkas_bucket(oracle: SecurityOracle, strict: bool) -> None:
    chance = random.Random(8)
    cases = [(chance.choice(LIMITS), _events(chance)) for _ in range(300)]

    answers = oracle.ask(
        [
            {"kind": "bucket", "limit": limit, "events": events, "strict": strict}
            for limit, events in cases
        ]
    )

    for (limit, events), expected in zip(cases, answers, strict=True):
        bucket = TokenBucket()
        record = bucket.record_strictly if strict else bucket.record
        assert [record(amount, int(now), limit) for now, amount in events] == expected
