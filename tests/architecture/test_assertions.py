"""Every test asserts something: itself, or by a function that it calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Final, NamedTuple

from rookery import testing

_TESTS: Final = Path(__file__).parents[1]
_KIT: Final = Path(testing.__file__).parent
_ASSERTING: Final = {"fail", "raises", "wait_until", "wait_until_async", "warns"}
# Text is searched instead of a syntax tree: parsing all tests would take some seconds.
_DEFINITION: Final = re.compile(r"^( *)(?:async )?def (\w+)\(", re.MULTILINE)
_STATEMENT: Final = re.compile(r"^ +(?:assert|raise)\b", re.MULTILINE)
_CALL: Final = re.compile(r"(\w+)\(")


class Function(NamedTuple):
    """A function of the tests or of their kit."""

    place: str
    name: str
    asserts: bool
    calls: set[str]


def functions(text: str, place: str) -> Iterator[Function]:
    """Yield all functions, also methods and inner ones."""
    for found in _DEFINITION.finditer(text):
        indent, name = len(found[1]), found[2]
        # The closing bracket of a long signature is on a line like that of `def`.
        end = re.compile(rf"^ {{0,{indent}}}[^\s)#]", re.MULTILINE).search(text, found.end())
        body = text[found.end() : end.start() if end else len(text)]
        line = text.count("\n", 0, found.start()) + 1
        asserts = _STATEMENT.search(body) is not None
        yield Function(f"{place}:{line}", name, asserts, set(_CALL.findall(body)))


def silent_tests(found: Iterable[Function]) -> list[str]:
    """Return the tests that neither assert nor call anything that does.

    Functions whose name begins with `check` raise if something is wrong, in the product, too.
    """
    known = list(found)
    asserting = set(_ASSERTING)
    while more := {
        function.name
        for function in known
        if function.name not in asserting and (function.asserts or function.calls & asserting)
    }:
        asserting |= more
    return [
        f"{function.place} {function.name}"
        for function in known
        if function.name.startswith("test_")
        and function.name not in asserting
        and not any(name.startswith("check") for name in function.calls)
    ]


def test_every_test_asserts_something() -> None:
    found = [
        function
        for folder in (_TESTS, _KIT)
        for path in sorted(folder.rglob("*.py"))
        for function in functions(path.read_text("utf-8"), str(path.relative_to(folder)))
    ]

    assert len(found) > 5_000
    assert silent_tests(found) == []


def test_silent_test_is_found() -> None:
    text = dedent("""\
        def test_silent():
            work()
        def test_loud(
            options,
        ):
            assert work()
        def test_delegating():
            compare(1, 2)
        def compare(a, b):
            see(a, b)
        async def see(a, b):
            def inner():
                raise ValueError
        def test_checking():
            check_settings({})
        def test_waiting():
            wait_until(work)
    """)
    assert silent_tests(functions(text, "t")) == ["t:1 test_silent"]
