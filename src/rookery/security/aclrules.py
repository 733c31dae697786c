"""Decides by access rules, as Kafka's StandardAuthorizer does.

- Super users can do everything.
- A rule applies if its pattern covers the resource (literal, prefixed or `*`), its principal is the
  client's or `User:*`, its host is the client's or `*`, and it covers the operation.
- A DENY that applies wins over every ALLOW, regardless of which pattern is more specific.
- ALLOW of READ, WRITE, DELETE or ALTER also allows DESCRIBE; ALLOW of ALTER_CONFIGS also allows
  DESCRIBE_CONFIGS. DENY implies nothing. ALL covers every operation, for both verdicts.
- Otherwise the client is denied, unless no rule at all covers the resource and resources without
  rules are open to everyone.

There is one difference: the literal `*` covers every name. Kafka leaves out longer names that
begin with an asterisk, even for DENY. No topic has such a name, but a group can.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from rookery.model.acl import WILDCARD, PatternType
from rookery.security.access import AclResource, Operation
from rookery.security.acl import ANYONE, AclBinding, AclFilter, PermissionType

PROBE_NAME: Final = "hardcode"
"""The name that Kafka tries first when any resource of a type is sufficient."""


class ProtectedResource(NamedTuple):
    """The resource that a client wants to use."""

    type: AclResource
    name: str


class AclReason(Enum):
    """Why a client is allowed or denied."""

    SUPER_USER = "the principal is a super user"
    ALLOWED = "a rule allows it"
    OPEN = "no rule covers the resource, and such resources are open to everyone"
    DENIED = "a rule denies it"
    NOT_ALLOWED = "no rule allows it"


class AclDecision(NamedTuple):
    """Whether a client can do something, and by which rule."""

    allowed: bool
    rule: AclBinding | None
    """The rule that was decisive, if one was."""
    reason: AclReason


_BY_SUPER_USER: Final = AclDecision(allowed=True, rule=None, reason=AclReason.SUPER_USER)
_BY_OPENNESS: Final = AclDecision(allowed=True, rule=None, reason=AclReason.OPEN)
_BY_DEFAULT: Final = AclDecision(allowed=False, rule=None, reason=AclReason.NOT_ALLOWED)

# A fetch of 1 000 partitions repeats 1 000 questions. A client chooses names and can make them
# long, so both bounds limit memory: to about 6 MB.
_MAX_MEMO: Final = 8_192
_MAX_MEMO_NAME: Final = 249
_EVERY_OPERATION: Final = -1
_IMPLIED: Final[Mapping[Operation, Operation]] = {
    Operation.READ: Operation.DESCRIBE,
    Operation.WRITE: Operation.DESCRIBE,
    Operation.DELETE: Operation.DESCRIBE,
    Operation.ALTER: Operation.DESCRIBE,
    Operation.ALTER_CONFIGS: Operation.DESCRIBE_CONFIGS,
}


_Question = tuple[str, str, int, ProtectedResource]


class _Entry(NamedTuple):
    """A rule, prepared for comparison."""

    operations: int
    """One bit for each operation that the rule covers."""
    host: str | None
    """The only address that the rule applies to; None for all."""
    is_deny: bool
    rule: AclBinding


_Group = dict[str, tuple[_Entry, ...]]
"""Rules by principal."""
_Pattern = tuple[PatternType, str]


class _Table:
    """The rules for one type of resource. It changes only while `AclRules` builds it."""

    __slots__ = ("groups", "lengths", "principals")

    def __init__(self, source: _Table | None = None) -> None:
        self.groups: dict[PatternType, dict[str, _Group]] = {
            pattern_type: dict(source.groups[pattern_type]) if source else {}
            for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
        }
        """The rules of each pattern."""
        self.principals: _Group = source.principals if source else {}
        """The rules of all patterns."""
        self.lengths: tuple[int, ...] = source.lengths if source else ()
        """The lengths of all prefixes, longest first."""

    def find_covering(self, name: str) -> Iterator[_Group]:
        """Return the groups whose pattern covers a name, the most specific first."""
        literals = self.groups[PatternType.LITERAL]
        prefixes = self.groups[PatternType.PREFIXED]
        if name in literals:
            yield literals[name]
        for length in self.lengths:
            if length <= len(name) and (prefix := name[:length]) in prefixes:
                yield prefixes[prefix]
        if WILDCARD in literals and name != WILDCARD:
            yield literals[WILDCARD]

    def change(self, add: list[_Entry], remove: list[_Entry]) -> None:
        """Apply changes; every group that other tables may share is replaced."""
        self.principals = _change_group(self.principals, add, remove)
        additions, removals = _by_pattern(add), _by_pattern(remove)
        for pattern in {**additions, **removals}:
            pattern_type, name = pattern
            groups = self.groups[pattern_type]
            group = _change_group(
                groups.get(name, {}), additions.get(pattern, ()), removals.get(pattern, ())
            )
            if group:
                groups[name] = group
            else:
                groups.pop(name, None)
        lengths = {len(prefix) for prefix in self.groups[PatternType.PREFIXED]}
        self.lengths = tuple(sorted(lengths, reverse=True))


class AclRules:
    """An immutable set of rules, indexed so that a decision does not depend on their number.

    The cost of a decision grows with the number of different lengths of prefixes, and with the
    number of rules that one principal has on one pattern.
    """

    __slots__ = ("_bindings", "_is_open", "_memo", "_super_users", "_tables")

    def __init__(
        self,
        rules: Iterable[AclBinding] = (),
        *,
        super_users: Iterable[str] = (),
        allow_everyone_if_no_acl: bool = False,
    ) -> None:
        """Index the rules.

        Args:
            rules: the rules in force.
            super_users: principals, as in `User:admin`, to which no rule applies.
            allow_everyone_if_no_acl: whether resources that no rule covers are open to everyone.
        """
        self._super_users = frozenset(super_users)
        self._is_open = allow_everyone_if_no_acl
        self._bindings: dict[AclBinding, None] = {}
        self._tables: dict[AclResource, _Table] = {}
        self._memo: dict[_Question, AclDecision] = {}
        self._change(rules, ())

    def change(
        self, *, add: Iterable[AclBinding] = (), remove: Iterable[AclBinding] = ()
    ) -> AclRules:
        """Return the rules after a change; rules are removed first.

        It costs a copy of the names of all patterns, not of all rules: about 0.1 ms for 10 000.
        """
        changed = AclRules(super_users=self._super_users, allow_everyone_if_no_acl=self._is_open)
        changed._bindings = dict(self._bindings)
        changed._tables = dict(self._tables)
        changed._change(add, remove)
        return changed

    def __len__(self) -> int:
        return len(self._bindings)

    def __contains__(self, rule: object) -> bool:
        return rule in self._bindings

    def __iter__(self) -> Iterator[AclBinding]:
        """Return the rules, sorted by resource."""
        return iter(sorted(self._bindings))

    def select(self, choice: AclFilter) -> list[AclBinding]:
        """Return the rules that a filter matches, sorted by resource."""
        wanted = choice.to_stored()
        return sorted(rule for rule in self._bindings if wanted.matches(rule.to_stored()))

    def decide(
        self,
        principal: str,
        host: str,
        operation: Operation,
        resource: ProtectedResource,
    ) -> AclDecision:
        """Decide whether a client can do something.

        Args:
            principal: as in `User:alice`.
            host: the client's address, in the form of `security.acl.format_host`.
            operation: what it wants to do; not ALL.
            resource: with what.
        """
        key = (principal, host, operation, resource)
        decision = self._memo.get(key)
        if decision is None:
            decision = self._decide(principal, host, operation, resource)
            if len(resource.name) <= _MAX_MEMO_NAME:
                if len(self._memo) >= _MAX_MEMO:
                    self._memo.clear()
                self._memo[key] = decision
        return decision

    def _decide(
        self,
        principal: str,
        host: str,
        operation: Operation,
        resource: ProtectedResource,
    ) -> AclDecision:
        if principal in self._super_users:
            return _BY_SUPER_USER
        bit = 1 << operation
        allowing: AclBinding | None = None
        is_covered = False
        for group in self._find_covering(resource):
            is_covered = True
            for entry in _find_applying(group, principal, host):
                if entry.operations & bit:
                    if entry.is_deny:
                        return AclDecision(allowed=False, rule=entry.rule, reason=AclReason.DENIED)
                    allowing = allowing or entry.rule
        if allowing is not None:
            return AclDecision(allowed=True, rule=allowing, reason=AclReason.ALLOWED)
        return _BY_OPENNESS if self._is_open and not is_covered else _BY_DEFAULT

    def allows_any(
        self, principal: str, host: str, operation: Operation, resource_type: AclResource
    ) -> bool:
        """Return whether a client can do something with at least one resource of a type.

        This is Kafka's `authorizeByResourceType`, including its peculiarities: a resource with the
        name `hardcode` is tried first, and apart from that an operation implies no other. A DENY
        of `*` wins. Otherwise an ALLOW counts unless a DENY covers its whole pattern.
        """
        probe = ProtectedResource(resource_type, PROBE_NAME)
        if self.decide(principal, host, operation, probe).allowed:
            return True
        table = self._tables.get(resource_type)
        if table is None:
            return False
        rules = [
            entry.rule
            for entry in _find_applying(table.principals, principal, host)
            if entry.rule.operation in (operation, Operation.ALL)
        ]
        denied = {_pattern(rule) for rule in rules if rule.permission is PermissionType.DENY}
        allowed = {_pattern(rule) for rule in rules if rule.permission is PermissionType.ALLOW}
        everything = (PatternType.LITERAL, WILDCARD)
        if everything in denied:
            return False
        return everything in allowed or any(
            not _is_dominated(pattern, denied) for pattern in allowed
        )

    def _find_covering(self, resource: ProtectedResource) -> Iterable[_Group]:
        table = self._tables.get(resource.type)
        return () if table is None else table.find_covering(resource.name)

    def _change(self, add: Iterable[AclBinding], remove: Iterable[AclBinding]) -> None:
        added = dict.fromkeys(add)
        gone = [rule for rule in dict.fromkeys(remove) if rule in self._bindings]
        gone = [rule for rule in gone if rule not in added]
        new = [rule for rule in added if rule not in self._bindings]
        for rule in gone:
            del self._bindings[rule]
        self._bindings.update(dict.fromkeys(new))
        for resource_type in {rule.resource_type for rule in (*gone, *new)}:
            table = _Table(self._tables.get(resource_type))
            table.change(
                [_prepare(rule) for rule in new if rule.resource_type is resource_type],
                [_prepare(rule) for rule in gone if rule.resource_type is resource_type],
            )
            self._tables[resource_type] = table


def _prepare(rule: AclBinding) -> _Entry:
    is_deny = rule.permission is PermissionType.DENY
    operations = 1 << rule.operation
    if rule.operation is Operation.ALL:
        operations = _EVERY_OPERATION
    elif not is_deny and rule.operation in _IMPLIED:
        operations |= 1 << _IMPLIED[rule.operation]
    host = None if rule.host == WILDCARD else rule.host
    return _Entry(operations, host, is_deny, rule)


def _change_group(group: _Group, add: Sequence[_Entry], remove: Sequence[_Entry]) -> _Group:
    """Return a changed copy of a group."""
    changed = dict(group)
    gone = set(remove)
    new: defaultdict[str, list[_Entry]] = defaultdict(list)
    for entry in add:
        new[entry.rule.principal].append(entry)
    for principal in dict.fromkeys(entry.rule.principal for entry in (*add, *remove)):
        entries = (*changed.get(principal, ()), *new[principal])
        left = tuple(entry for entry in entries if entry not in gone)
        if left:
            changed[principal] = left
        else:
            changed.pop(principal, None)
    return changed


def _by_pattern(entries: Iterable[_Entry]) -> dict[_Pattern, list[_Entry]]:
    patterns: defaultdict[_Pattern, list[_Entry]] = defaultdict(list)
    for entry in entries:
        patterns[_pattern(entry.rule)].append(entry)
    return patterns


def _pattern(rule: AclBinding) -> _Pattern:
    return rule.pattern_type, rule.name


def _find_applying(group: _Group, principal: str, host: str) -> Iterator[_Entry]:
    """Return the entries of a group that apply to a client."""
    for who in (principal, ANYONE):
        for entry in group.get(who, ()):
            if entry.host is None or entry.host == host:
                yield entry


def _is_dominated(pattern: _Pattern, denied: set[_Pattern]) -> bool:
    """Return whether a denied pattern covers everything that a pattern covers."""
    pattern_type, name = pattern
    if pattern_type is PatternType.LITERAL and pattern in denied:
        return True
    return any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))
