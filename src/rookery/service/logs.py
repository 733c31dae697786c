"""Log lines as `key=value` pairs (logfmt), readable and easy to parse."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Final

# Attributes that every record has; all others were given as `extra`.
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LogfmtFormatter(logging.Formatter):
    """Writes a record on one line, then its stack trace; `service/logkeys.py` lists the keys."""

    def __init__(self, **always: object) -> None:
        """Prepare to write lines; each has these keys, too."""
        super().__init__()
        self._always = always

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = datetime.fromtimestamp(record.created, UTC)
        pairs: dict[str, object] = {
            "time": f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name.removeprefix("rookery."),
            **self._always,
            "msg": record.getMessage(),
        }
        pairs.update((key, value) for key, value in vars(record).items() if key not in _USUAL)
        line = " ".join(f"{key}={_quote(str(value))}" for key, value in pairs.items())
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def set_up(level: str, **always: object) -> None:
    """Write log lines of this level and above to the standard error stream."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogfmtFormatter(**always))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _quote(text: str) -> str:
    is_plain = text.isprintable() and text and not set(text) & set(' "=')
    if is_plain:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in escaped)
    return f'"{shown}"'
