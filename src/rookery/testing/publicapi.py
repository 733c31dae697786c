"""The public API: its modules, their names, and the page docs/api.md that records them.

`python -m rookery.testing.publicapi docs/api.md` writes the page; `scripts/docs` runs it.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

from rookery.wire.catalog import apis

PACKAGES: Final = (
    "rookery",
    "rookery.client",
    "rookery.consumer",
    "rookery.spark",
    "rookery.pipeline",
    "rookery.jobs",
    "rookery.decode",
    "rookery.tables",
    "rookery.proxy",
    "rookery.testing",
)
"""The packages that users import from; each exports its names lazily."""
MODULES: Final = (
    "rookery.kafkars",
    "rookery.wire.codec",
    "rookery.records.columns",
    "rookery.records.reading",
)
"""Single modules that are public, too."""
MESSAGES: Final = "rookery.wire.messages"
"""The folder of the protocol's messages: all modules in it are public."""

_HEAD: Final = """\
# Public API

Made from the `__all__` lists by `scripts/docs`; do not edit. All other modules are private: they
can change in any release. [CONTRIBUTING.md](../CONTRIBUTING.md#rules) says how a name is added or
removed.
"""
_MESSAGES_HEAD: Final = """
## `rookery.wire.messages`

Kafka's protocol: one module for each API. `rookery.wire.codec` encodes and decodes all messages.

| module | API | messages |
|---|---|---|
"""


class PublicName(NamedTuple):
    """A public name, and the first line of its documentation."""

    module: str
    name: str
    summary: str


def public_names() -> list[PublicName]:
    """Return all names of the public packages and modules, in the order of the page."""
    return [
        PublicName(module, name, _summary(module, name))
        for module in (*PACKAGES, *MODULES)
        for name in list_exported(module)
    ]


def list_exported(module: str) -> list[str]:
    """Return the names that a public module declares."""
    declared: list[str] = import_module(module).__all__
    return declared


def home_of(module: str, name: str) -> str:
    """Return the module that defines a name, as type checkers see it."""
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
            return home_of(str(node.module), name)
    return module


def page() -> str:
    """Return the text of docs/api.md."""
    names = public_names()
    sections = [_section(module, names) for module in (*PACKAGES, *MODULES)]
    return "".join([_HEAD, *sections, _MESSAGES_HEAD, *_messages()])


def _section(module: str, names: list[PublicName]) -> str:
    about = _first_line(import_module(module).__doc__ or "")
    rows = [
        f"| `{public.name}` | {_cell(public.summary)} |\n"
        for public in names
        if public.module == module
    ]
    return "".join([f"\n## `{module}`\n\n{about}\n\n| name | |\n|---|---|\n", *rows])


def _messages() -> Iterator[str]:
    for api in apis().values():
        module = api.request.__module__.removeprefix(f"{MESSAGES}.")
        names = (api.request.__name__, api.response.__name__)
        yield f"| `{module}` | {api.name} | {', '.join(f'`{name}`' for name in names)} |\n"


def _summary(module: str, name: str) -> str:
    """Return the first line of a class, a function or a constant; empty if it has none."""
    value: object = getattr(import_module(module), name)
    if inspect.isclass(value) or inspect.isroutine(value):
        return _first_line(inspect.getdoc(value) or "")
    return _first_line(_constant_docs(home_of(module, name)).get(name, ""))


def _first_line(doc: str) -> str:
    """Return the first paragraph as one line."""
    return " ".join(inspect.cleandoc(doc).split("\n\n")[0].split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


@cache
def _constant_docs(module: str) -> dict[str, str]:
    """Return the string literals below a module's assignments, which Python drops."""
    docs: dict[str, str] = {}
    for statement, below in pairwise(_tree(module).body):
        match statement, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(doc))),
            ):
                docs[name] = doc
            case _:
                pass
    return docs


@cache
def _tree(module: str) -> ast.Module:
    imported: ModuleType = import_module(module)
    return ast.parse(Path(str(imported.__file__)).read_bytes())


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), "utf-8")
