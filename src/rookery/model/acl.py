"""Access rules with Kafka's numbers, as they are stored, and filters over them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

ANY: Final = 1
"""In a filter: every resource type, pattern type, operation or permission."""
WILDCARD: Final = "*"
"""As a literal name: every resource of the type. As a host: every address."""


class PatternType(IntEnum):
    """How a pattern names resources. Rules are literal or prefixed; the others are for filters."""

    ANY = 1
    """Patterns of both types whose text equals the name."""
    MATCH = 2
    """Every pattern that covers the name: literal, prefixed and wildcard."""
    LITERAL = 3
    PREFIXED = 4


class StoredAcl(NamedTuple):
    """One rule: a principal on a host may or may not perform an operation on some resources."""

    resource_type: int
    pattern_type: int
    resource_name: str
    principal: str
    host: str
    operation: int
    permission: int


class StoredAclFilter(NamedTuple):
    """A condition on rules; None and `ANY` match everything."""

    resource_type: int = ANY
    pattern_type: int = ANY
    resource_name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    @property
    def is_exact(self) -> bool:
        """Whether one rule at most has all these values."""
        return (
            self.pattern_type in {PatternType.LITERAL, PatternType.PREFIXED}
            and ANY not in {self.resource_type, self.operation, self.permission}
            and None not in {self.resource_name, self.principal, self.host}
        )

    def matches(self, rule: StoredAcl) -> bool:
        """Whether the filter finds a rule."""
        return (
            self.resource_type in {ANY, rule.resource_type}
            and self.operation in {ANY, rule.operation}
            and self.permission in {ANY, rule.permission}
            and self.principal in {None, rule.principal}
            and self.host in {None, rule.host}
            and self._matches_pattern(rule)
        )

    def _matches_pattern(self, rule: StoredAcl) -> bool:
        name = self.resource_name
        if self.pattern_type == PatternType.MATCH:
            if name is None:
                return True
            if rule.pattern_type == PatternType.PREFIXED:
                return name.startswith(rule.resource_name)
            return rule.resource_name in {name, WILDCARD}
        return self.pattern_type in {ANY, rule.pattern_type} and name in {None, rule.resource_name}
