"""Resources and operations of access rules, as `rookery acls` names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rookery.cli.options.fields import option, part, repeated, switch

if TYPE_CHECKING:
    from rookery.model.acl import PatternType
    from rookery.security.access import AclResource, Operation
    from rookery.security.acl import AclBinding, AclFilter

OPERATIONS: Final = (
    "all", "read", "write", "create", "delete", "alter", "describe", "cluster-action",
    "describe-configs", "alter-configs", "idempotent-write", "create-tokens", "describe-tokens",
    "two-phase-commit",
)  # fmt: skip
"""Kafka's operations, as flags spell them."""


@dataclass(frozen=True, kw_only=True)
class ResourceOptions:
    """The resources that rules protect."""

    topics: tuple[str, ...] = repeated(
        "--topic", metavar="NAME", help="a topic; * matches every topic; may be repeated"
    )
    groups: tuple[str, ...] = repeated(
        "--group", metavar="NAME", help="a consumer group; may be repeated"
    )
    transactional_ids: tuple[str, ...] = repeated(
        "--transactional-id", metavar="ID", help="a transactional id; may be repeated"
    )
    token_users: tuple[str, ...] = repeated(
        "--token-user",
        metavar="PRINCIPAL",
        help="the principal that owns delegation tokens; may be repeated",
    )
    cluster: bool = switch("--cluster", help="the cluster itself")

    def list_named(self) -> list[tuple[AclResource, str]]:
        """Return the types and names that were given."""
        from rookery.security.access import AclResource
        from rookery.security.acl import CLUSTER_NAME

        names = {
            AclResource.TOPIC: self.topics,
            AclResource.GROUP: self.groups,
            AclResource.TRANSACTIONAL_ID: self.transactional_ids,
            AclResource.USER: self.token_users,
            AclResource.CLUSTER: (CLUSTER_NAME,) if self.cluster else (),
        }
        return [(kind, name) for kind, given in names.items() for name in dict.fromkeys(given)]


@dataclass(frozen=True, kw_only=True)
class AclFilterOptions:
    """The rules that a command is about; all that match every flag."""

    resources: ResourceOptions = part(ResourceOptions)
    prefix: bool = switch("--prefix", help="treat the names as prefixes")
    operation: str | None = option(
        "--operation",
        choices=OPERATIONS,
        metavar="OPERATION",
        help="select rules for this operation only",
    )
    host: str | None = option("--host", metavar="ADDRESS", help="select rules for this host only")


def read_operation(text: str) -> Operation:
    """Return the operation that a flag names."""
    from rookery.security.access import Operation

    return Operation[text.upper().replace("-", "_")]


def find_filters(
    options: AclFilterOptions, principal: str | None, pattern_type: PatternType
) -> list[AclFilter]:
    """Return a filter for each resource that was named; one for all if none was.

    Args:
        options: the flags.
        principal: as in `User:alice`; None for all.
        pattern_type: for names without `--prefix`.
    """
    from dataclasses import replace

    from rookery.model.acl import PatternType
    from rookery.security.acl import AclFilter

    everything = AclFilter(
        principal=principal,
        host=options.host,
        operation=None if options.operation is None else read_operation(options.operation),
    )
    if options.prefix:
        pattern_type = PatternType.PREFIXED
        everything = replace(everything, pattern_type=pattern_type)
    return [
        replace(everything, resource_type=kind, name=name, pattern_type=pattern_type)
        for kind, name in options.resources.list_named()
    ] or [everything]


def rule_as_json(rule: AclBinding) -> dict[str, str]:
    """Return a rule for scripts."""
    from rookery.security.acltext import rule_fields

    return rule_fields(rule)
