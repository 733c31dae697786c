"""Patterns over names of topics and transactional ids, matched in linear time.

Clients send them in RE2's syntax (KIP-848), and any client can send one. Python's own matcher
backtracks: `(a+)+$` would stop the process. RE2 itself does the matching, with bounds on the size
of a compiled pattern and on the work of one pass over all names.

RE2 normally reads each byte once. A pattern whose automaton does not fit into its memory costs up
to one step for each byte and instruction, about 3 ns. `MAX_WORK` bounds that.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from rookery.errors import ApiError, ErrorCode

MAX_LENGTH: Final = 4_096
"""The maximum length of a pattern in characters."""
MAX_INSTRUCTIONS: Final = 10_000
"""The maximum number of instructions of a compiled pattern."""
MAX_WORK: Final = 500_000_000
"""The maximum product of name bytes and instructions, for patterns that are not small."""
SMALL_INSTRUCTIONS: Final = 250
"""Patterns up to this size can be matched against any number of names."""
_MEMORY_BYTES: Final = 1 << 20
_SPECIAL: Final = frozenset(r"\.+*?()|[]{}^$")


def quote_regex(text: str) -> str:
    """Return a pattern that matches a text and nothing else."""
    return "".join(f"\\{each}" if each in _SPECIAL else each for each in text)


class NamePattern:
    """A compiled pattern, which must match a whole name."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        """Compile a pattern.

        Raises:
            ApiError: INVALID_REGULAR_EXPRESSION.
        """
        self.text = text
        if len(text) > MAX_LENGTH:
            raise _invalid(text[:64] + "…", f"it is longer than {MAX_LENGTH} characters")
        self._compiled = _compile(text)
        if self._compiled.programsize > MAX_INSTRUCTIONS:
            raise _invalid(text, "it is too large once its repetitions are written out")

    def matches(self, name: str) -> bool:
        """Return whether the pattern matches the whole name."""
        return self._compiled.fullmatch(_encode(name)) is not None

    def select(self, names: Iterable[str]) -> list[str]:
        """Return the names that the pattern matches completely.

        Raises:
            ApiError: INVALID_REGULAR_EXPRESSION, if that could take too much work.
        """
        names = list(names)
        size = self._compiled.programsize
        if size > SMALL_INSTRUCTIONS and size * sum(map(len, names)) > MAX_WORK:
            raise _invalid(self.text, f"matching it against {len(names)} names is too much work")
        fullmatch = self._compiled.fullmatch
        return [name for name in names if fullmatch(_encode(name)) is not None]


def _compile(text: str) -> Any:
    re2 = _load()
    options = re2.Options()
    options.max_mem = _MEMORY_BYTES
    # Groups are not needed; without them, a match is one run of the automaton.
    options.never_capture = True
    options.log_errors = False
    try:
        return re2.compile(_encode(text), options)
    except re2.error as error:
        raise _invalid(text, _reason(error)) from None
    finally:
        # Its cache would keep the memory of 128 patterns, from any client.
        re2.purge()


@cache
def _load() -> Any:
    try:
        import re2  # noqa: PLC0415 (few clients send patterns, and it may be missing)
    except ImportError as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            "regular expressions need the package google-re2 on the server: "
            "`pip install google-re2` there, or name the topics",
        ) from error
    return re2


def _encode(text: str) -> bytes:
    # No client can send a lone surrogate; one from another source must not cause a failure.
    return text.encode(errors="surrogatepass")


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def _invalid(text: str, why: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_REGULAR_EXPRESSION, f"the regular expression {text!r} is invalid: {why}"
    )
