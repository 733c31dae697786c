r"""Regular expressions over topic names, in time that no expression can blow up.

Consumers subscribe by expressions in RE2's syntax, which anybody may send. Python's own matcher
tries all ways one after the other, and `(a+)+$` would stop the broker. Here all ways are followed
at once, as RE2 does: work is bounded by the size of the expression times that of the name.

    text ──parse──► nodes ──compile──► states ──fullmatch──► sets of states, remembered

What RE2 has no notion of (back references, looking around) is refused, as are Unicode classes,
which topic names have no use for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from rookery.broker.groups.pattern import (
    Alternatives,
    Assertion,
    Characters,
    Node,
    Repeat,
    Sequence,
    invalid,
    parse,
)

MAX_STATES: Final = 1_000
MAX_STEPS: Final = 1_000_000
_MAX_REMEMBERED: Final = 20_000
_SPLIT: Final = Assertion("")
_WORD: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")

Test: TypeAlias = Characters | Assertion
States: TypeAlias = frozenset[int]


class State(NamedTuple):
    """What must hold to go on, and where to."""

    test: Test
    targets: list[int]


class Regex:
    """A compiled expression."""

    __slots__ = ("_accept", "_begin", "_known", "_states", "_steps", "text")

    def __init__(self, text: str) -> None:
        """Compile an expression.

        Raises:
            ApiError: INVALID_REGULAR_EXPRESSION.
        """
        self.text = text
        self._states: list[State] = []
        self._accept = self._add(_SPLIT, [])
        self._known: dict[tuple[States, str, str], States] = {}
        self._steps = 0
        self._begin: States = frozenset([self._compile(parse(text), self._accept)])

    def matching(self, names: list[str]) -> list[str]:
        """Return the names that the whole expression matches.

        Raises:
            ApiError: INVALID_REGULAR_EXPRESSION, if that takes more work than we are willing to do.
        """
        self._steps = 0
        return [name for name in names if self.fullmatch(name)]

    def fullmatch(self, name: str) -> bool:
        """Whether the expression matches a name from end to end."""
        states, before = self._begin, ""
        for char in name:
            states = self._step(states, before, char)
            if not states:
                return False
            before = char
        return self._accept in self._closure(states, before, "")

    # Building: from the end to the beginning, so that each state knows what comes next.

    def _add(self, test: Test, targets: list[int]) -> int:
        if len(self._states) >= MAX_STATES:
            raise invalid(self.text, "it is too large once its repetitions are written out")
        self._states.append(State(test, targets))
        return len(self._states) - 1

    def _compile(self, node: Node, then: int) -> int:
        """Add the states of a node that goes on with `then`; return where it begins."""
        match node:
            case Characters() | Assertion():
                return self._add(node, [then])
            case Sequence(parts):
                for part in reversed(parts):
                    then = self._compile(part, then)
                return then
            case Alternatives(parts):
                return self._add(_SPLIT, [self._compile(part, then) for part in parts])
            case Repeat():
                return self._compile_repeat(node, then)

    def _compile_repeat(self, node: Repeat, then: int) -> int:
        if node.most is None:
            loop = self._add(_SPLIT, [then])
            self._states[loop].targets.append(self._compile(node.part, loop))
            then = loop
        else:
            after = then
            for _ in range(node.most - node.least):
                then = self._add(_SPLIT, [self._compile(node.part, then), after])
        for _ in range(node.least):
            then = self._compile(node.part, then)
        return then

    # Following all ways at once.

    def _step(self, states: States, before: str, char: str) -> States:
        key = states, before, char
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            known = self._known[key] = frozenset(
                target
                for number in self._closure(states, before, char)
                if _takes(self._states[number].test, char)
                for target in self._states[number].targets
            )
        return known

    def _closure(self, states: States, before: str, after: str) -> set[int]:
        """Return all states that can be reached here without taking a character."""
        reached = set(states)
        todo = list(states)
        while todo:
            test, targets = self._states[todo.pop()]
            if isinstance(test, Assertion) and _HOLDS[test.kind](before, after):
                todo += [target for target in targets if target not in reached]
                reached.update(targets)
        self._steps += len(reached)
        if self._steps > MAX_STEPS:
            raise invalid(self.text, "matching it takes too much work")
        return reached


def _takes(test: Test, char: str) -> bool:
    return isinstance(test, Characters) and ((char in test.chars) is not test.is_negated)


def _is_edge(before: str, after: str) -> bool:
    return (before in _WORD) is not (after in _WORD)


_HOLDS: Final[dict[str, Callable[[str, str], bool]]] = {
    "": lambda _before, _after: True,
    "^": lambda before, _after: not before,
    "$": lambda _before, after: not after,
    "b": _is_edge,
    "B": lambda before, after: not _is_edge(before, after),
}
