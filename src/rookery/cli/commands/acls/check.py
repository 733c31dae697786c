"""`rookery acls check`: checks whether a principal is allowed an operation, and by which rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.acls import OPERATIONS, ResourceOptions, read_operation, rule_as_json
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import option, part, positional, repeated, switch

if TYPE_CHECKING:
    from rookery.security.aclrules import AclDecision, ProtectedResource


@dataclass(frozen=True, kw_only=True)
class CheckAcls(CommandArguments):
    """The permission to check."""

    principal: str = positional("PRINCIPAL", "the principal, such as User:alice")
    resources: ResourceOptions = part(ResourceOptions)
    operation: str = option(
        "--operation",
        choices=OPERATIONS[1:],
        metavar="OPERATION",
        required=True,
        help=f"the operation: {', '.join(OPERATIONS[1:])}",
    )
    host: str = option(
        "--host",
        default="*",
        metavar="ADDRESS",
        help="the client's IP address (default: only rules for all hosts apply)",
    )
    super_users: tuple[str, ...] = repeated(
        "--super-user",
        metavar="PRINCIPAL",
        help="a principal in the super_users setting of the brokers, which clients cannot "
        "read; may be repeated",
    )
    open: bool = switch(
        "--allow-if-no-acl", help="assume that the brokers set allow_everyone_if_no_acl"
    )
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: CheckAcls) -> int:
    """Fetch the rules and decide by them; the exit code is 1 if one resource is denied."""
    from rookery.cli.session import run_client
    from rookery.errors import ConfigError
    from rookery.security.aclrules import AclRules, ProtectedResource

    resources = [ProtectedResource(kind, name) for kind, name in args.resources.list_named()]
    if not resources:
        raise ConfigError("name at least one resource, such as --topic")
    fetched = run_client("acls", args.address, lambda client: client.acls.describe())
    rules = AclRules(fetched, super_users=args.super_users, allow_everyone_if_no_acl=args.open)
    operation = read_operation(args.operation)
    decisions = {
        resource: rules.decide(args.principal, _host(args.host), operation, resource)
        for resource in resources
    }
    if args.json:
        print_json([_as_json(resource, decision) for resource, decision in decisions.items()])
    else:
        for resource, decision in decisions.items():
            print(_text(args, resource, decision))
    return 0 if all(decision.allowed for decision in decisions.values()) else 1


def _host(text: str) -> str:
    from rookery.errors import ConfigError
    from rookery.model.acl import WILDCARD
    from rookery.security.acl import format_host

    if text == WILDCARD:
        return text
    try:
        return format_host(text)
    except ValueError as error:
        raise ConfigError(f"--host: {error}") from error


def _as_json(resource: ProtectedResource, decision: AclDecision) -> dict[str, object]:
    return {
        "resource": resource.type.name.lower().replace("_", "-"),
        "name": resource.name,
        "allowed": decision.allowed,
        "reason": decision.reason.value,
        "rule": None if decision.rule is None else rule_as_json(decision.rule),
    }


def _text(args: CheckAcls, resource: ProtectedResource, decision: AclDecision) -> str:
    verdict = "allowed" if decision.allowed else "denied"
    kind = resource.type.name.lower().replace("_", " ")
    by = f": {decision.rule}" if decision.rule else ""
    return (
        f"{args.principal} {args.operation} on {kind} {resource.name!r}: {verdict}; "
        f"{decision.reason.value}{by}"
    )


COMMAND = Command(
    arguments=CheckAcls,
    run=run,
    summary="Check whether access rules allow an operation, and show the rule that decides.",
    example="rookery acls check User:alice --topic birds --operation read",
)
