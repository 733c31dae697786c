r"""Principals, and how the name of a certificate becomes one (`ssl.principal.mapping.rules`).

Rules are separated by commas and tried in order; the first that matches the whole name applies:

    RULE:pattern/replacement/[LU]    replace; then lower (L) or upper (U) case
    DEFAULT                          the name itself

Patterns have RE2's syntax, which matches in linear time, so that no certificate can make a rule
slow. It differs from Java's: there is no look-around, no possessive quantifier and no reference to
a group inside the pattern; `.` matches every character except a line feed, and `$` only the end of
the name. A rule that RE2 cannot compile is an error at start-up. Replacements are Java's: `$1` and
`${name}` insert groups, `\` escapes. As in Java, a pattern that matches the empty text is
replaced at the end of the name once more; begin it with `^` to prevent that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from rookery.errors import ConfigError

USER: Final = "User"
"""The only kind of principal that logins create."""
MAX_RULES_LENGTH: Final = 65_536
SETTING: Final = "ssl.principal.mapping.rules"

_RULE: Final = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)", re.ASCII)
_PARSER: Final = re.compile(_RULE)
_REFERENCE: Final = re.compile(r"\\(.)|\$\{(\w+)\}|\$([0-9]+)|\$", re.ASCII | re.DOTALL)
_MEMORY_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated client, or all clients that did not authenticate."""

    kind: str
    name: str

    def __str__(self) -> str:
        """Return the form that rules use, as in `User:alice`."""
        return f"{self.kind}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Principal:
        """Read the form that rules use; the name may contain further colons.

        Raises:
            ValueError: there is no colon, or nothing before it.
        """
        kind, colon, name = text.partition(":")
        if not colon or not kind:
            raise ValueError(f"{text!r} is not a principal of the form Type:name")
        return cls(kind, name)


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The principal of a client that has not authenticated."""


def parse_super_users(text: str) -> tuple[str, ...]:
    """Return the principals of a list in Kafka's form: `User:admin;User:x`.

    Raises:
        ConfigError: one of them is not a principal.
    """
    names = tuple(part.strip() for part in text.split(";") if part.strip())
    for name in names:
        try:
            Principal.parse(name)
        except ValueError:
            user = name.removeprefix(":")
            raise ConfigError(
                f"{name!r} must be written as {Principal(USER, user)}", name="super_users"
            ) from None
    return names


class PrincipalMapping:
    """The rules that map the name of a certificate to the name of a user."""

    __slots__ = ("_rules",)

    def __init__(self, rules: str = "DEFAULT") -> None:
        """Compile the rules.

        Raises:
            ConfigError: a rule has not the right form, or its pattern cannot be used.
        """
        if len(rules) > MAX_RULES_LENGTH:
            raise _invalid(f"the rules are longer than {MAX_RULES_LENGTH} characters")
        self._rules = list(_parse_rules(rules))

    def apply(self, name: str) -> str | None:
        """Return the user's name for a certificate's name; None if no rule matches."""
        results = (rule(name) for rule in self._rules)
        return next((result for result in results if result is not None), None)


_Rule = Callable[[str], str | None]


def _parse_rules(text: str) -> Iterator[_Rule]:
    for rule in _split_rules(text):
        parsed = _PARSER.match(rule)
        if parsed is None or parsed.end() != len(rule):
            raise _invalid(f"{rule!r} is neither DEFAULT nor RULE:pattern/replacement/[LU]")
        is_default, pattern, replacement, case, _ = parsed.groups()
        if is_default is not None:
            yield str
        elif pattern is not None:
            yield _Replacement(pattern, replacement, case).apply


def _split_rules(text: str) -> list[str]:
    return [match[1] for match in _SPLITTER.finditer(text.strip())]


class _Replacement:
    """One rule with a pattern."""

    def __init__(self, pattern: str, replacement: str, case: str) -> None:
        self._pattern = _compile(pattern)
        self._parts = list(_read_replacement(replacement, self._pattern))
        self._change_case: Callable[[str], str] = {"L": str.lower, "U": str.upper}.get(case, str)

    def apply(self, name: str) -> str | None:
        if self._pattern.fullmatch(name) is None:
            return None
        return self._change_case("".join(self._replace(name)))

    def _replace(self, name: str) -> Iterator[str]:
        # The pattern matches the whole name, but a search may prefer a shorter match, and may find
        # an empty one after it. Java's `replaceAll` replaces each of them.
        last = position = 0
        while position <= len(name):
            match = self._pattern.search(name, position)
            if match is None:
                break
            yield name[last : match.start()]
            for part in self._parts:
                yield part if isinstance(part, str) else match[part.group] or ""
            last = match.end()
            position = last if last > match.start() else last + 1
        yield name[last:]


@dataclass(frozen=True, slots=True)
class _Reference:
    """A place in a replacement where a group is inserted."""

    group: int | str


def _read_replacement(text: str, pattern: Any) -> Iterator[str | _Reference]:
    """Divide a replacement into literal text and references."""
    last = 0
    for match in _REFERENCE.finditer(text):
        yield text[last : match.start()]
        last = match.end()
        escaped, name, number = match.groups()
        if escaped is not None:
            yield escaped
        elif name is not None and name in pattern.groupindex:
            yield _Reference(name)
        elif number is not None:
            yield from _read_number(number, pattern.groups)
        else:
            raise _invalid(f"the replacement {text!r} refers to a group that does not exist")
    yield text[last:]


def _read_number(digits: str, groups: int) -> Iterator[str | _Reference]:
    """Read `$digits`: as many digits as make the number of a group; the rest is text."""
    if int(digits[0]) > groups:
        if groups:
            # Kafka inserts references to groups that do not exist as they are.
            yield f"${digits}"
            return
        raise _invalid(f"the replacement refers to the group ${digits}, but there are no groups")
    end = 1
    while end < len(digits) and int(digits[: end + 1]) <= groups:
        end += 1
    yield _Reference(int(digits[:end]))
    yield digits[end:]


def _compile(pattern: str) -> Any:
    re2 = _load()
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0] if error.args else "unknown"
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise _invalid(f"the pattern {pattern!r} is invalid: {reason}") from None


@cache
def _load() -> Any:
    try:
        import re2  # noqa: PLC0415 (few listeners have rules, and it may be missing)
    except ImportError as error:
        raise _invalid("rules need the package google-re2: `pip install google-re2`") from error
    return re2


def _invalid(reason: str) -> ConfigError:
    return ConfigError(reason, name=SETTING)
