"""Access rules, credentials and quotas: events change the state, and images keep it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.broker.acls import write_filter, write_rule
from rookery.cluster.entry import EntryAuthor, read_entry, read_events, write_entry
from rookery.cluster.events.brokerevents import BrokerRegistered, ClusterCreated, EndpointRow
from rookery.cluster.events.securityevents import (
    AclFilterRow,
    AclRow,
    AclsCreated,
    AclsDeleted,
    ClusterSecretCreated,
    QuotaChange,
    QuotaEntityPart,
    QuotasChanged,
    ScramChange,
    ScramCredentialsChanged,
)
from rookery.cluster.state.images.image import read_image, write_image
from rookery.cluster.state.images.securityimage import security_image
from rookery.cluster.state.security import StoredScram
from rookery.cluster.state.state import FEATURE_LEVEL, EntryOutcome, Outcome, State
from rookery.errors import ErrorCode
from rookery.model.acl import PatternType, StoredAcl, StoredAclFilter
from rookery.security.access import AclResource, Operation
from rookery.security.acl import AclBinding, AclFilter, PermissionType
from rookery.wire.message import Message

SECRET = b"planted-secret"


class Cluster:
    """A state, and one broker that writes entries."""

    def __init__(self, level: int = FEATURE_LEVEL, endpoints: list[EndpointRow] | None = None):
        self.state = State()
        self.sequence = 0
        self._write(EntryAuthor(0, 0, 0, 0, 0), ClusterCreated(cluster_id="c", feature_level=level))
        broker = BrokerRegistered(
            process_id=bytes(16), node_id=1, host="h", port=1, endpoints=endpoints or []
        )
        self._write(EntryAuthor(0, 0, 0, 0, 0), broker)

    def decide(self, event: Message) -> Outcome:
        self.sequence += 1
        return self._write(EntryAuthor(2, self.sequence, 0, 0, 0), event).outcomes[0]

    def _write(self, author: EntryAuthor, event: Message) -> EntryOutcome:
        number = self.state.applied + 1
        entry = read_entry(number, write_entry(author, [event]))
        return self.state.apply(number, entry, read_events(number, entry))


def rule_row(name: str = "orders", **changes: object) -> AclRow:
    row = AclRow(
        resource_type=2, pattern_type=3, resource_name=name, principal="User:u", host="*",
        operation=3, permission=3,
    )  # fmt: skip
    return row.replace(**changes)


def any_filter(**changes: object) -> AclFilterRow:
    row = AclFilterRow(
        resource_type=1, pattern_type=1, resource_name=None, principal=None, host=None,
        operation=1, permission=1,
    )  # fmt: skip
    return row.replace(**changes)


def credential(mechanism: int, *, is_removed: bool = False) -> ScramChange:
    return ScramChange(
        mechanism=mechanism,
        iterations=4096,
        salt=b"" if is_removed else SECRET,
        stored_key=SECRET,
        server_key=SECRET,
    )


def quota_change(
    key: str, value: float, parts: list[tuple[str, str | None]], *, is_removed: bool = False
) -> QuotasChanged:
    return QuotasChanged(
        entity=[QuotaEntityPart(entity_type=kind, name=name) for kind, name in parts],
        changes=[QuotaChange(key=key, value=value, is_removed=is_removed)],
    )


def fill(cluster: Cluster) -> None:
    cluster.decide(AclsCreated(rules=[rule_row(), rule_row("b")]))
    cluster.decide(ScramCredentialsChanged(user="u", changes=[credential(1), credential(2)]))
    cluster.decide(quota_change("producer_byte_rate", 10.0, [("user", "u"), ("client-id", None)]))
    cluster.decide(ClusterSecretCreated(secret=SECRET))


def test_created_rule_exists_once() -> None:
    cluster = Cluster()
    cluster.decide(AclsCreated(rules=[rule_row(), rule_row()]))
    before = cluster.state.security.acls_version
    outcome = cluster.decide(AclsCreated(rules=[rule_row()]))

    assert outcome.error is ErrorCode.NONE
    assert list(cluster.state.security.acls) == [StoredAcl(2, 3, "orders", "User:u", "*", 3, 3)]
    assert cluster.state.security.acls_version > before


def test_deletion_lists_the_rules_of_each_filter() -> None:
    cluster = Cluster()
    cluster.decide(AclsCreated(rules=[rule_row("a"), rule_row("b"), rule_row("c")]))

    outcome = cluster.decide(
        AclsDeleted(filters=[any_filter(resource_name="a"), any_filter(resource_name="x")])
    )

    assert [[rule.resource_name for rule in rules] for rules in outcome.value] == [["a"], []]
    assert [rule.resource_name for rule in cluster.state.security.acls] == ["b", "c"]


NAMES = st.sampled_from(["a", "ab", "abc", "*", ""])
PRINCIPALS = st.sampled_from(["User:u", "User:*"])
HOSTS = st.sampled_from(["*", "10.0.0.1"])
BINDINGS = st.builds(
    AclBinding,
    st.sampled_from(AclResource),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    NAMES,
    PRINCIPALS,
    HOSTS,
    st.sampled_from(Operation),
    st.sampled_from(PermissionType),
)
FILTERS = st.builds(
    AclFilter,
    resource_type=st.none() | st.sampled_from(AclResource),
    pattern_type=st.sampled_from(PatternType),
    name=st.none() | NAMES,
    principal=st.none() | PRINCIPALS,
    host=st.none() | HOSTS,
    operation=st.none() | st.sampled_from(Operation),
    permission=st.none() | st.sampled_from(PermissionType),
)


@given(st.lists(BINDINGS, max_size=12, unique=True), st.lists(FILTERS, max_size=3), st.data())
def test_deletion_removes_the_rules_that_each_filter_describes(
    rules: list[AclBinding], wanted: list[AclFilter], data: st.DataObject
) -> None:
    wanted += map(exact_filter, data.draw(st.lists(st.sampled_from(rules) if rules else BINDINGS)))
    cluster = Cluster()
    cluster.decide(AclsCreated(rules=list(map(write_rule, rules))))

    outcome = cluster.decide(AclsDeleted(filters=list(map(write_filter, wanted))))

    described = [[rule for rule in rules if _is_described(each, rule)] for each in wanted]
    assert outcome.value == [[rule.to_stored() for rule in found] for found in described]
    gone = {rule for found in described for rule in found}
    assert list(cluster.state.security.acls) == [
        rule.to_stored() for rule in rules if rule not in gone
    ]


def exact_filter(rule: AclBinding) -> AclFilter:
    return AclFilter(
        resource_type=rule.resource_type,
        pattern_type=rule.pattern_type,
        name=rule.name,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission=rule.permission,
    )


def test_deletion_by_name_compares_few_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers serve no client while they apply the deletion."""
    compared, matches, count = 0, StoredAclFilter.matches, 1_000

    def count_calls(choice: StoredAclFilter, rule: StoredAcl) -> bool:
        nonlocal compared
        compared += 1
        return matches(choice, rule)

    monkeypatch.setattr(StoredAclFilter, "matches", count_calls)
    cluster = Cluster()
    names = [f"topic-{number}" for number in range(count)]
    users = [f"User:{number}" for number in range(count)]
    cluster.decide(AclsCreated(rules=[rule_row(name) for name in names]))
    cluster.decide(AclsCreated(rules=[rule_row("one", principal=user) for user in users]))

    by_name = [any_filter(resource_name=name) for name in names]
    whole = [
        AclFilterRow(
            resource_type=2, pattern_type=3, resource_name="one", principal=user, host="*",
            operation=3, permission=3,
        )
        for user in users
    ]  # fmt: skip
    outcomes = [cluster.decide(AclsDeleted(filters=filters)) for filters in (by_name, whole)]

    assert [[len(rules) for rules in outcome.value] for outcome in outcomes] == [[1] * count] * 2
    assert cluster.state.security.acls == {}
    assert compared == count


def _is_described(wanted: AclFilter, rule: AclBinding) -> bool:
    """Decide as the documentation of Kafka's filters describes it, field by field."""
    fields = ("resource_type", "principal", "host", "operation", "permission")
    if any(getattr(wanted, name) not in (None, getattr(rule, name)) for name in fields):
        return False
    has_name = wanted.name in (None, rule.name)
    match wanted.pattern_type, rule.pattern_type:
        case PatternType.MATCH, PatternType.PREFIXED:
            return wanted.name is None or wanted.name.startswith(rule.name)
        case PatternType.MATCH, PatternType.LITERAL:
            return has_name or rule.name == "*"
        case pattern_type, own:
            return pattern_type in (PatternType.ANY, own) and has_name


def test_credentials_of_a_user_change_together() -> None:
    cluster = Cluster()
    cluster.decide(ScramCredentialsChanged(user="u", changes=[credential(1)]))
    before = write_image(cluster.state)

    outcome = cluster.decide(
        ScramCredentialsChanged(
            user="u",
            changes=[credential(1, is_removed=True), credential(2, is_removed=True)],
        )
    )

    assert outcome.error is ErrorCode.RESOURCE_NOT_FOUND
    assert cluster.state.security.scram == {"u": {1: StoredScram(4096, SECRET, SECRET, SECRET)}}
    assert security_image(cluster.state.security) == security_image(read_image(before).security)


@given(st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=5))
def test_refused_credential_change_changes_nothing(changes: list[tuple[int, bool]]) -> None:
    cluster = Cluster()
    cluster.decide(ScramCredentialsChanged(user="u", changes=[credential(1)]))
    before = dict(cluster.state.security.scram["u"])

    outcome = cluster.decide(
        ScramCredentialsChanged(
            user="u", changes=[credential(number, is_removed=gone) for number, gone in changes]
        )
    )

    if outcome.error is not ErrorCode.NONE:
        assert cluster.state.security.scram == {"u": before}


def test_user_without_credentials_is_removed() -> None:
    cluster = Cluster()
    cluster.decide(ScramCredentialsChanged(user="u", changes=[credential(1)]))
    cluster.decide(ScramCredentialsChanged(user="u", changes=[credential(1, is_removed=True)]))

    assert cluster.state.security.scram == {}


def test_quota_entity_does_not_depend_on_the_order_of_its_parts() -> None:
    cluster, key = Cluster(), "producer_byte_rate"
    cluster.decide(quota_change(key, 1.0, [("user", "u"), ("client-id", None)]))
    before = cluster.state.security.quotas_version
    cluster.decide(quota_change(key, 2.0, [("client-id", None), ("user", "u")]))

    assert cluster.state.security.quotas == {(("client-id", None), ("user", "u")): {key: 2.0}}
    assert cluster.state.security.quotas_version > before


def test_entity_without_quotas_is_removed() -> None:
    cluster, key = Cluster(), "producer_byte_rate"
    cluster.decide(quota_change(key, 1.0, [("user", None)]))
    outcome = cluster.decide(quota_change(key, 0.0, [("user", None)], is_removed=True))

    assert outcome.error is ErrorCode.NONE
    assert cluster.state.security.quotas == {}


def test_first_secret_of_the_cluster_stays() -> None:
    cluster = Cluster()
    cluster.decide(ClusterSecretCreated(secret=b"first"))
    outcome = cluster.decide(ClusterSecretCreated(secret=b"second"))

    assert outcome.error is ErrorCode.DUPLICATE_RESOURCE
    assert cluster.state.security.secret == b"first"


def test_image_keeps_everything() -> None:
    row = EndpointRow(listener="internal", protocol=3, host="h", port=2)
    cluster = Cluster(endpoints=[row])
    fill(cluster)

    copy = read_image(write_image(cluster.state))

    ours, theirs = cluster.state.security, copy.security
    assert (ours.acls, ours.scram, ours.quotas) == (theirs.acls, theirs.scram, theirs.quotas)
    assert list(ours.acls) == list(theirs.acls)
    assert theirs.secret == SECRET
    assert copy.brokers.by_node[1].endpoints == cluster.state.brokers.by_node[1].endpoints
    assert write_image(copy) == write_image(cluster.state)


def test_image_without_access_control_has_no_trace_of_it() -> None:
    cluster = Cluster()
    before = write_image(cluster.state)
    cluster.decide(AclsCreated(rules=[rule_row()]))
    assert write_image(cluster.state) != before
    cluster.decide(AclsDeleted(filters=[any_filter()]))

    never = Cluster()
    never.decide(AclsDeleted(filters=[]))
    never.decide(AclsDeleted(filters=[]))
    assert security_image(cluster.state.security) == []
    # The digests differ: they depend on the outcomes.
    never.state.digest = cluster.state.digest
    assert write_image(cluster.state) == write_image(never.state)


def test_secrets_are_not_part_of_any_text() -> None:
    cluster = Cluster()
    fill(cluster)
    changed = ScramCredentialsChanged(user="u", changes=[credential(1)])
    created = ClusterSecretCreated(secret=SECRET)
    outcome = cluster.decide(changed)
    data = write_entry(EntryAuthor(2, 99, 0, 0, 0), [changed, created])
    entry = read_entry(99, data)
    texts = [
        repr(value)
        for value in (
            changed,
            created,
            outcome,
            entry,
            read_events(99, entry),
            security_image(cluster.state.security),
            cluster.state.security,
            cluster.state.security.scram,
        )
    ]

    assert SECRET in data
    assert not [text for text in texts if SECRET.decode() in text]
    assert "14 secret bytes" in texts[0]
