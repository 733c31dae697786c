"""`rookery quotas list`: lists client quotas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.cli.command import Command, CommandArguments, print_json
from rookery.cli.options.connection import ClusterOptions
from rookery.cli.options.fields import part
from rookery.cli.options.quotaentity import QuotaEntityOptions

if TYPE_CHECKING:
    from rookery.client.quotas import QuotaDescription


@dataclass(frozen=True, kw_only=True)
class ListQuotas(CommandArguments):
    """The entities to list."""

    chosen: QuotaEntityOptions = part(
        QuotaEntityOptions, "entity", "Lists only quotas with these parts."
    )
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: ListQuotas) -> int:
    """List entities and their limits."""
    from rookery.cli.session import run_client

    chosen = args.chosen.entity()
    wanted = dict(chosen.parts()).items() if chosen is not None else ()
    quotas = run_client("quotas", args.address, lambda client: client.quotas.describe())
    quotas = [quota for quota in quotas if set(wanted) <= set(quota.entity.parts())]
    if args.json:
        print_json([_as_json(quota) for quota in quotas])
    elif quotas:
        _print_table(quotas)
    else:
        print("There are no such quotas; `rookery quotas set` sets one.")
    return 0


def _as_json(quota: QuotaDescription) -> dict[str, object]:
    return {"entity": dict(quota.entity.parts()), "limits": dict(sorted(quota.limits.items()))}


def _print_table(quotas: Sequence[QuotaDescription]) -> None:
    from rich.markup import escape

    from rookery.cli.output.tables import make_table, open_console

    table = make_table(("entity", "quota", "limit"), right=("limit",))
    table.pad_edge = False
    for quota in quotas:
        for key, value in sorted(quota.limits.items()):
            table.add_row(escape(str(quota.entity)), key, f"{value:,g}")
    open_console().print(table)


COMMAND = Command(
    arguments=ListQuotas,
    run=run,
    summary="List client quotas.",
    example="rookery quotas list --for-user alice --bootstrap kafka-1:9092",
)
