"""Access rules, users and quotas of Kafka's metadata: loaded, imported and written back."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from rookery.cluster.entry import fits
from rookery.cluster.events.securityevents import (
    AclsCreated,
    AclsDeleted,
    ScramCredentialsChanged,
)
from rookery.cluster.state.rules.securityrules import binding_of
from rookery.cluster.state.security import Security
from rookery.errors import ErrorCode
from rookery.formats.kraft.entries import MetadataEntry
from rookery.formats.kraft.image import MetadataImage
from rookery.logdir.accesscontrol import missing_events, records_of, security_of
from rookery.logdir.server.translate.securityscribe import SecurityScribe
from rookery.logdir.server.translate.work import Work
from rookery.wire.message import Message
from tests.broker.test_client_quotas import ALICE, FETCH, PRODUCE, alter, describe
from tests.broker.test_secrets import change_credentials
from tests.cluster.test_security_state import (
    Cluster,
    any_filter,
    credential,
    fill,
    quota_change,
    rule_row,
)
from tests.cluster.test_token_state import random_token_event, token_event
from tests.logdir.made import make_directory
from tests.logdir.test_serve_stages import serving


def contents(security: Security) -> tuple[Any, ...]:
    return set(security.acls), security.scram, security.quotas, security.tokens


def apply(image: MetadataImage, records: list[Message]) -> None:
    for record in records:
        assert record.KEY is not None
        image.apply(MetadataEntry(image.next_offset, 1, 0, record.KEY, 0, record))


def random_event(random: Random) -> Message:
    name, user = random.choice("abc"), random.choice("uv")
    choice = random.randrange(5)
    if choice == 0:
        rule = rule_row(name, operation=random.choice((3, 4)))
        return AclsCreated(rules=[rule, rule])
    if choice == 1:
        return AclsDeleted(filters=[any_filter(resource_name=name), any_filter(operation=3)])
    if choice == 2:
        change = credential(random.choice((1, 2)), is_removed=random.random() < 0.4)
        return ScramCredentialsChanged(user=user, changes=[change])
    if choice == 3:
        return random_token_event(random)
    return quota_change(
        random.choice(("producer_byte_rate", "consumer_byte_rate")),
        float(random.randrange(1, 9)),
        [("user", random.choice((None, user))), ("client-id", None)],
        is_removed=random.random() < 0.4,
    )


@pytest.mark.parametrize("seed", range(5))
def test_written_records_give_the_same_state(seed: int) -> None:
    cluster, random, image = Cluster(), Random(seed), MetadataImage()
    loaded: Any = SimpleNamespace(directory=SimpleNamespace(image=image))
    scribe = SecurityScribe(loaded)
    for number in range(200):
        event = random_event(random)
        outcome = cluster.decide(event)
        work = Work(0)
        if outcome.error is ErrorCode.NONE:
            scribe.writers[type(event)](work, event, outcome)
        apply(image, work.records)
        assert contents(security_of(image)) == contents(cluster.state.security)
        if number % 50 == 0:  # a restart
            scribe = SecurityScribe(loaded)
    assert not image.skipped
    assert not image.orphans


def test_exported_records_give_the_same_state() -> None:
    cluster, image = Cluster(), MetadataImage()
    fill(cluster)
    cluster.decide(token_event("a"))

    apply(image, list(records_of(cluster.state.security)))

    assert contents(security_of(image)) == contents(cluster.state.security)


def test_import_adds_only_what_is_missing() -> None:
    source, target, image = Cluster(), Cluster(), MetadataImage()
    for event in (
        AclsCreated(rules=[rule_row("a"), rule_row("b")]),
        ScramCredentialsChanged(user="u", changes=[credential(1), credential(2)]),
        quota_change("producer_byte_rate", 1.0, [("user", "u")]),
        quota_change("consumer_byte_rate", 2.0, [("user", "u")]),
        token_event("a"),
        token_event("b"),
    ):
        outcome, work = source.decide(event), Work(0)
        loaded: Any = SimpleNamespace(directory=SimpleNamespace(image=image))
        SecurityScribe(loaded).writers[type(event)](work, event, outcome)
        apply(image, work.records)
    target.decide(quota_change("producer_byte_rate", 9.0, [("user", "u")]))
    target.decide(token_event("b"))

    for missing in list(missing_events(image, target.state.security)):
        target.decide(missing)

    expected = Security()
    expected.acls, expected.scram = source.state.security.acls, source.state.security.scram
    expected.tokens = source.state.security.tokens
    expected.quotas = {(("user", "u"),): {"producer_byte_rate": 9.0, "consumer_byte_rate": 2.0}}
    assert contents(target.state.security) == contents(expected)
    assert not list(missing_events(image, target.state.security))


def test_import_of_many_rules_fits_into_entries() -> None:
    source, target, image = Security(), Cluster(), MetadataImage()
    rows = [rule_row(f"{number:05}".rjust(249, "t")) for number in range(5_000)]
    source.acls = dict.fromkeys(map(binding_of, rows))
    apply(image, list(records_of(source)))

    events = list(missing_events(image, Security()))

    assert len(events) > 1
    assert all(map(fits, events))
    for event in events:
        target.decide(event)
    assert target.state.security.acls == source.acls


def test_directory_keeps_changes(tmp_path: Path) -> None:
    folder = tmp_path / "kafka"
    make_directory(folder, {"t": [[b"a"]]})
    with serving(folder) as broker:
        alter(broker.bootstrap, ([ALICE], [(PRODUCE, 10.0), (FETCH, 20.0)]))
        alter(broker.bootstrap, ([ALICE], [(FETCH, None)]))
        change_credentials(broker)
        before = contents(broker.broker.replica.state.security)

    with serving(folder) as broker:
        _, _, limits = describe(broker.bootstrap)
        assert limits == {(frozenset({ALICE}), frozenset({(PRODUCE, 10.0)}))}
        assert contents(broker.broker.replica.state.security) == before
        assert broker.broker.quotas.is_active
