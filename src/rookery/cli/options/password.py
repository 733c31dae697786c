"""Passwords of commands: from a prompt, a file or standard input, never from an argument.

Every user of a machine can see arguments, and shells keep them in histories.
"""

from __future__ import annotations

import getpass
import sys
from pathlib import Path

from rookery.errors import ConfigError


def read_password(flag: str, file: str | None, owner: str) -> str:
    """Return a new password.

    Args:
        flag: the name of the flag, for errors.
        file: a file with the password in its first line; `-` is standard input; None asks.
        owner: the user whose password it is.

    Raises:
        ConfigError: the file cannot be read, the password is empty, or two entries differ.
    """
    password = _ask(owner) if file is None else _first_line(flag, file)
    if not password:
        raise ConfigError(f"{flag}: the password of {owner!r} is empty; a user needs one")
    return password


def _ask(owner: str) -> str:
    password = getpass.getpass(f"New password of {owner}: ")
    if password != getpass.getpass("The same again: "):
        raise ConfigError("the two passwords differ; nothing was changed")
    return password


def _first_line(flag: str, file: str) -> str:
    try:
        if file == "-":
            with open(sys.stdin.fileno(), encoding="utf-8", closefd=False) as stdin:
                text = stdin.readline()
        else:
            text = Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{flag}: {error}") from error
    lines = text.splitlines()
    return lines[0] if lines else ""
