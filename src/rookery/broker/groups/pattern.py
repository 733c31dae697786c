r"""The syntax of RE2's regular expressions, as far as topic names may need it.

Literals, `.`, `[a-z]`, `[^a-z]`, `[[:alpha:]]`, `\d \w \s` and their opposites, `\Q…\E`, `^ $ \A \z
\b \B`, groups (named or not), `(?i)` and `(?i:…)`, `|`, and `* + ? {n} {n,} {n,m}`, lazy or not: a
match is a match either way.
"""

from __future__ import annotations

import string
from typing import Final, NamedTuple, NoReturn, TypeAlias

from rookery.errors import ApiError, ErrorCode

MAX_LENGTH: Final = 4_096
MAX_DEPTH: Final = 50
MAX_REPEAT: Final = 1_000


class Characters(NamedTuple):
    """One character: of these, or none of these."""

    chars: frozenset[str]
    is_negated: bool = False


class Assertion(NamedTuple):
    """Something that must hold between two characters: "^", "$", "b" or "B"."""

    kind: str


class Sequence(NamedTuple):
    """One after the other."""

    parts: list[Node]


class Alternatives(NamedTuple):
    """One of several."""

    parts: list[Node]


class Repeat(NamedTuple):
    """The same so many times; None is no limit."""

    part: Node
    least: int
    most: int | None


Node: TypeAlias = Characters | Assertion | Sequence | Alternatives | Repeat

_NOTHING: Final = Sequence([])
_ANY: Final = Characters(frozenset("\n"), is_negated=True)
_CLASSES: Final = {
    "d": frozenset(string.digits),
    "w": frozenset(string.ascii_letters + string.digits + "_"),
    "s": frozenset("\t\n\f\r "),
}
_POSIX: Final = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": frozenset(map(chr, range(128))),
    "blank": frozenset("\t "),
    "cntrl": frozenset([*map(chr, range(32)), "\x7f"]),
    "digit": frozenset(string.digits),
    "graph": frozenset(map(chr, range(33, 127))),
    "lower": frozenset(string.ascii_lowercase),
    "print": frozenset(map(chr, range(32, 127))),
    "punct": frozenset(string.punctuation),
    "space": frozenset("\t\n\v\f\r "),
    "upper": frozenset(string.ascii_uppercase),
    "word": _CLASSES["w"],
    "xdigit": frozenset(string.hexdigits),
}
_ASSERTIONS: Final = {"A": "^", "z": "$", "b": "b", "B": "B"}
_ESCAPES: Final = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS: Final = frozenset("imsU")
_NAME: Final = _CLASSES["w"]


def parse(text: str) -> Node:
    """Read an expression.

    Raises:
        ApiError: INVALID_REGULAR_EXPRESSION.
    """
    if len(text) > MAX_LENGTH:
        raise invalid(text[:64] + "…", f"it is longer than {MAX_LENGTH} characters")
    return _Parser(text).parse()


def invalid(text: str, why: str) -> ApiError:
    """Say what is wrong with an expression."""
    return ApiError(
        ErrorCode.INVALID_REGULAR_EXPRESSION, f"the regular expression {text!r} is no use: {why}"
    )


class _Parser:
    """Reads from left to right; `_at` is what comes next."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._ignores_case = False

    def parse(self) -> Node:
        node = self._alternatives()
        if self._at < len(self._text):
            self._fail("a ')' closes nothing")
        return node

    def _fail(self, why: str) -> NoReturn:
        raise invalid(self._text, f"{why} (at {self._at})")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        char = self._peek()
        if not char:
            self._fail("it ends too early")
        self._at += 1
        return char

    def _accept(self, expected: str) -> bool:
        if not self._text.startswith(expected, self._at):
            return False
        self._at += len(expected)
        return True

    def _until(self, end: str, what: str) -> str:
        """Take everything before an end, and the end."""
        stop = self._text.find(end, self._at)
        if stop < 0:
            self._fail(f"{what} has no {end!r}")
        taken, self._at = self._text[self._at : stop], stop + len(end)
        return taken

    def _alternatives(self) -> Node:
        # Flags in the midst of a group hold until it ends, in later alternatives, too.
        ignored_case = self._ignores_case
        parts = [self._sequence()]
        while self._accept("|"):
            parts.append(self._sequence())
        self._ignores_case = ignored_case
        return parts[0] if len(parts) == 1 else Alternatives(parts)

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            if self._accept(r"\Q"):
                parts += self._quoted()
                continue
            parts.append(self._repeated(self._atom()))
        # What is nothing goes: repeating it would add nothing either, any number of times.
        return Sequence([part for part in parts if part != _NOTHING])

    def _quoted(self) -> list[Node]:
        stop = self._text.find(r"\E", self._at)
        stop = len(self._text) if stop < 0 else stop
        taken, self._at = self._text[self._at : stop], min(stop + 2, len(self._text))
        return [self._literal(char) for char in taken]

    def _atom(self) -> Node:
        char = self._next()
        match char:
            case "(":
                return self._group()
            case "[":
                return self._bracket()
            case ".":
                return _ANY
            case "^" | "$":
                return Assertion(char)
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                self._fail(f"nothing comes before {char!r}")
            case _:
                pass
        return self._literal(char)

    def _literal(self, char: str) -> Characters:
        return self._fold(Characters(frozenset(char)))

    def _fold(self, characters: Characters) -> Characters:
        if not self._ignores_case:
            return characters
        both = {other for char in characters.chars for other in (char.lower(), char.upper())}
        return Characters(frozenset(both), characters.is_negated)

    # Repetition.

    def _repeated(self, node: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return node
        self._accept("?")
        if self._peek() in ("*", "+", "?") or (self._peek() == "{" and self._bounds() is not None):
            self._fail("one repetition follows another")
        return node if node == _NOTHING else Repeat(node, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        """Take what says how often; None if nothing does."""
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        char = self._peek()
        if char in simple:
            self._at += 1
            return simple[char]
        return self._counted() if char == "{" else None

    def _counted(self) -> tuple[int, int | None] | None:
        """Take `{n}`, `{n,}` or `{n,m}`; anything else in braces stands for itself."""
        stop = self._text.find("}", self._at)
        inner = self._text[self._at + 1 : stop] if stop > 0 else ""
        low, comma, high = inner.partition(",")
        if not _is_number(low) or (high and not _is_number(high)):
            return None
        self._at = stop + 1
        least = int(low)
        most = None if comma and not high else int(high or low)
        if max(least, most or 0) > MAX_REPEAT or (most is not None and most < least):
            self._fail(f"{{{inner}}} is no count up to {MAX_REPEAT}")
        return least, most

    # Groups.

    def _group(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"groups are nested more than {MAX_DEPTH} deep")
        ignored_case = self._ignores_case
        if self._accept("?") and self._flags():
            self._depth -= 1
            return _NOTHING
        node = self._alternatives()
        if not self._accept(")"):
            self._fail("a '(' is not closed")
        self._ignores_case = ignored_case
        self._depth -= 1
        return node

    def _flags(self) -> bool:
        """Take what follows `(?`; return whether that is flags only, and the group's end."""
        if self._accept("P<") or (self._peek() == "<" and self._accept("<")):
            name = self._until(">", "a group's name")
            if not name or not _NAME.issuperset(name):
                self._fail(f"{name!r} names no group")
            return False
        is_on = True
        while self._peek() not in (":", ")"):
            flag = self._next()
            if flag == "-" and is_on:
                is_on = False
            elif flag not in _FLAGS:
                self._fail(f"(?{flag} is nothing that is known here")
            elif flag == "i":
                self._ignores_case = is_on
        return self._next() == ")"

    # Characters.

    def _escape(self) -> Node:
        char = self._next()
        if char in _ASSERTIONS:
            return Assertion(_ASSERTIONS[char])
        return self._fold(self._escaped(char))

    def _escaped(self, char: str) -> Characters:
        """Return what an escape stands for, within brackets or not."""
        if char in _CLASSES:
            return Characters(_CLASSES[char])
        if char.lower() in _CLASSES:
            return Characters(_CLASSES[char.lower()], is_negated=True)
        if char == "x":
            return Characters(frozenset(self._hexadecimal()))
        if char in _ESCAPES:
            return Characters(frozenset(_ESCAPES[char]))
        if char.isalnum() or not char.isascii():
            self._fail(f"\\{char} is nothing that is known here")
        return Characters(frozenset(char))

    def _hexadecimal(self) -> str:
        is_braced = self._accept("{")
        digits = self._until("}", r"\x{") if is_braced else self._next() + self._next()
        is_hexadecimal = digits and set(digits) <= set(string.hexdigits)
        if not is_hexadecimal or len(digits) > 6 or int(digits, 16) > 0x10FFFF:
            self._fail(f"{digits!r} is no character's number")
        return chr(int(digits, 16))

    def _bracket(self) -> Characters:
        is_negated = self._accept("^")
        chars: set[str] = set()
        is_first = True
        while is_first or self._peek() != "]":
            chars |= self._range()
            is_first = False
        self._at += 1
        folded = self._fold(Characters(frozenset(chars)))
        return Characters(folded.chars, is_negated)

    def _range(self) -> frozenset[str]:
        """Take one element of a bracket: a character, a range or a class."""
        if self._accept("[:"):
            return self._posix(self._until(":]", "a class in brackets"))
        low = self._member()
        is_range = self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", "")
        if not is_range or len(low) > 1:
            return low
        self._at += 1
        high = self._member()
        [first] = low
        last = min(high)
        if len(high) > 1 or last < first:
            self._fail(f"{first!r} to {last!r} is no range")
        # Topic names are ASCII; what lies beyond matches none of them.
        return frozenset(map(chr, range(ord(first), min(ord(last), 127) + 1)))

    def _posix(self, name: str) -> frozenset[str]:
        is_negated = name.startswith("^")
        chars = _POSIX.get(name.removeprefix("^"))
        if chars is None:
            self._fail(f"[:{name}:] is no class")
        return _POSIX["ascii"] - chars if is_negated else chars

    def _member(self) -> frozenset[str]:
        char = self._next()
        if char != "\\":
            return frozenset(char)
        taken = self._escaped(self._next())
        return _POSIX["ascii"] - taken.chars if taken.is_negated else taken.chars


def _is_number(text: str) -> bool:
    return bool(text) and len(text) <= 6 and text.isascii() and text.isdigit()
