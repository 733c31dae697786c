"""The text of a field in the `repr` of a message, without secrets and records."""

from __future__ import annotations

from typing import Final

# The annotation of fields with passwords, keys and tokens.
_MARK: Final = "SecretBytes"


def text_of(message: object, name: str, annotation: str) -> str:
    """Return a field and its value as text: only the size of secrets, views and records."""
    return f"{name}={_value_text(getattr(message, name), annotation)}"


def _value_text(value: object, annotation: str) -> str:
    if isinstance(value, tuple):  # records in several parts
        return f"<{sum(memoryview(part).nbytes for part in value)} bytes>"
    if isinstance(value, memoryview):
        return f"<{value.nbytes} bytes>"
    if isinstance(value, bytes) and _MARK in annotation:
        return f"<{len(value)} secret bytes>"
    return repr(value)
