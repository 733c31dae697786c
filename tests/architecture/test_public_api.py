"""What users may import: names with docstrings, recorded in docs/api.md, enough for the guides.

docs/api.md is the record of the public API. A name that is renamed or removed changes that page,
so the change is seen in a review and gets a line in CHANGELOG.md.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from rookery.exports import lazy_exports
from rookery.testing.publicapi import (
    MESSAGES,
    MODULES,
    PACKAGES,
    PublicName,
    home_of,
    list_exported,
    page,
    public_names,
)

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/api.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/guide").glob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
CHANGED = (
    "docs/api.md is the record of the public API, and it is not current. Run scripts/docs, and"
    " write a line in CHANGELOG.md for every public name that was added, renamed or removed."
)


def code_of(file: Path) -> Iterator[str]:
    """Yield the Python code of a program, or of each block of a page."""
    text = file.read_text("utf-8")
    if file.suffix == ".py":
        yield text
        return
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        lines = block.splitlines()
        typed = [line[4:] for line in lines if line.startswith((">>> ", "... "))]
        yield "\n".join(typed or lines)


def violations(code: str) -> list[str]:
    """Return the names of Rookery that code uses and that are not public."""
    return sorted({name for name in used_names(ast.parse(code)) if not is_public(name)})


def used_names(tree: ast.AST) -> Iterator[str]:
    """Yield the full names of Rookery's that code imports, or reaches from `import rookery`."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if is_ours(module):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.Import(names=names):
                yield from (alias.name for alias in names if is_ours(alias.name))
            case ast.Attribute(value=value, attr=attribute):
                reached = ast.unparse(value)
                if reached in PACKAGES:
                    yield f"{reached}.{attribute}"
            case _:
                pass


def is_ours(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] == "rookery"


def is_public(name: str) -> bool:
    if name in PACKAGES or name in MODULES:
        return True
    module, _, last = name.rpartition(".")
    if module == MESSAGES or module.startswith(f"{MESSAGES}."):
        return True
    return module in {*PACKAGES, *MODULES} and last in list_exported(module)


def recorded(text: str) -> set[str]:
    """Return the names that the page lists."""
    names: set[str] = set()
    for section in text.split("\n## `")[1:]:
        module = section.partition("`")[0]
        names |= {f"{module}.{name}" for name in re.findall(r"^\| `(\w+)` ", section, re.MULTILINE)}
    return names


def undeclared(names: list[str], imported: set[str]) -> set[str]:
    """Return the names that are in only one of two lists of a package's exports."""
    return set(names) ^ imported


@pytest.fixture(scope="module")
def public() -> list[PublicName]:
    """All public names; the first use imports every public package, with pyspark and Arrow."""
    return public_names()


@pytest.mark.parametrize("module", [*PACKAGES, *MODULES])
def test_every_name_exists_and_has_a_docstring(module: str, public: list[PublicName]) -> None:
    names = list_exported(module)
    there = import_module(module)

    assert len(names) == len(set(names)) > 0
    assert [name for name in names if not hasattr(there, name)] == []
    bare = [known.name for known in public if known.module == module and not known.summary]
    assert not bare, f"{module}: these names need a docstring"


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_see_the_names_that_python_loads(package: str) -> None:
    there = import_module(package)
    tree = ast.parse(Path(str(there.__file__)).read_text("utf-8"))
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module is not None and is_ours(node.module)
        for alias in node.names
    } - {lazy_exports.__name__}

    assert undeclared(list_exported(package), imported) == set()
    for name in list_exported(package):
        assert getattr(there, name) is getattr(import_module(home_of(package, name)), name)
        assert name in dir(there)


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_has_the_name_of_an_export(package: str) -> None:
    # Python makes an imported module an attribute of its package, which would hide the export.
    modules = {info.name for info in iter_modules(import_module(package).__path__)}
    assert modules & set(list_exported(package)) == set()


def test_a_name_has_one_public_home() -> None:
    homes = [(home_of(name.module, name.name), name.name) for name in public_names()]
    assert sorted({home for home in homes if homes.count(home) > 1}) == []


def test_no_name_disappears_unnoticed() -> None:
    now = recorded(page())
    gone = recorded(PAGE.read_text("utf-8")) - now
    assert not gone, f"{sorted(gone)}: no longer public. {CHANGED}"


def test_the_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), CHANGED


@pytest.mark.parametrize("file", [*PAGES, *EXAMPLES], ids=lambda file: str(file.relative_to(ROOT)))
def test_docs_and_examples_use_public_names_only(file: Path) -> None:
    private = [name for code in code_of(file) for name in violations(code)]
    assert not private, f"{file.name}: not public; see docs/api.md for the names that are"


def test_the_docs_have_code() -> None:
    used = {
        name
        for file in [*PAGES, *EXAMPLES]
        for code in code_of(file)
        for name in used_names(ast.parse(code))
    }
    assert {"rookery.replay", "rookery.client.Client", "rookery.wire.codec.decode"} <= used


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("from rookery.client.views.groups import describe_groups",
         ["rookery.client.views.groups.describe_groups"]),
        ("from rookery.client import Connections", ["rookery.client.Connections"]),
        ("from rookery import errors", ["rookery.errors"]),
        ("import rookery.broker.broker", ["rookery.broker.broker"]),
        ("import rookery\nrookery.errors.Error", ["rookery.errors"]),
        ("import rookery.spark\nrookery.spark.lag.publish_lag()", ["rookery.spark.lag"]),
        ("from rookery.wire.messages.heartbeat import HEARTBEAT\nfrom rookery import kafkars", []),
        ("import rookery\nrookery.read('host:9092', 'birds')\nimport pyarrow", []),
    ],
)  # fmt: skip
def test_a_planted_violation_is_found(code: str, expected: list[str]) -> None:
    assert violations(code) == expected


def test_planted_differences_are_found(tmp_path: Path) -> None:
    guide = tmp_path / "guide.md"
    guide.write_text("Text\n```python\n>>> from rookery.log import writer\n>>> 1\n1\n```\n")

    assert [violations(code) for code in code_of(guide)] == [["rookery.log.writer"]]
    assert recorded(page() + "| `gone` | A name. |\n") - recorded(page()) == {f"{MESSAGES}.gone"}
    assert undeclared(["read", "typo"], {"read", "replay"}) == {"typo", "replay"}


def test_a_private_name_is_not_an_attribute_of_a_package() -> None:
    load, listed = lazy_exports("rookery", {"rookery.errors": ["Error"]})

    assert "Error" in listed()
    with pytest.raises(AttributeError, match="module 'rookery' has no attribute 'Errors'"):
        load("Errors")
