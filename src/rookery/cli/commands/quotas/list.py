"""`rookery quotas list`."""

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

    chosen: QuotaEntityOptions = part(QuotaEntityOptions, "entity", "only quotas with these parts")
    address: ClusterOptions = part(ClusterOptions, "connection")


def run(args: ListQuotas) -> int:
    """List entities and their limits."""
    from rookery.cli.session import run_client

    chosen = args.chosen.entity()
    wanted = dict(chosen.parts()).items() if chosen is not None else ()
    found = run_client("quotas", args.address, lambda client: client.quotas.describe())
    found = [one for one in found if set(wanted) <= set(one.entity.parts())]
    if args.json:
        print_json([_as_json(one) for one in found])
    elif found:
        _print_table(found)
    else:
        print("There are no such quotas; `rookery quotas set` sets one.")
    return 0


def _as_json(one: QuotaDescription) -> dict[str, object]:
    return {"entity": dict(one.entity.parts()), "limits": dict(sorted(one.limits.items()))}


def _print_table(found: Sequence[QuotaDescription]) -> None:
    from rich.markup import escape

    from rookery.cli.output.tables import make_table, open_console

    table = make_table(("entity", "quota", "limit"), right=("limit",))
    table.pad_edge = False
    for one in found:
        for key, value in sorted(one.limits.items()):
            table.add_row(escape(str(one.entity)), key, f"{value:,g}")
    open_console().print(table)


COMMAND = Command(
    arguments=ListQuotas,
    run=run,
    summary="List client quotas.",
    example="rookery quotas list --for-user alice --bootstrap kafka-1:9092",
)
