"""Log lines: logfmt, and keys that have one meaning everywhere."""

from __future__ import annotations

import ast
import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import rookery
from rookery.service.logkeys import KEYS
from rookery.service.logs import LogfmtFormatter

# Given to `set_up`, for all lines of a process.
OF_THE_PROCESS = {"role", "worker"}


def test_log_line_is_logfmt() -> None:
    stream = io.StringIO()
    logger = logging.getLogger("rookery.service.test")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LogfmtFormatter(worker=2))
    logger.addHandler(handler)

    logger.warning('said "no"\nand left', extra={"topic": "a b", "error": 5})

    logger.removeHandler(handler)
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert "level=warning logger=service.test worker=2 " in line
    assert r'msg="said \"no\"\nand left" topic="a b" error=5' in line


def extras(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield what calls are given as `extra=`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (keyword.value for keyword in node.keywords if keyword.arg == "extra")


def used_keys() -> dict[str, str]:
    """Return the keys of all log calls, each with a place where it is used."""
    used: dict[str, str] = {}
    for path in Path(rookery.__file__).parent.rglob("*.py"):
        for extra in extras(ast.parse(path.read_text())):
            where = f"{path.name}:{extra.lineno}"
            assert isinstance(extra, ast.Dict), f"{where}: write the keys where they are logged"
            for key in extra.keys:
                assert isinstance(key, ast.Constant), f"{where}: a key is a literal"
                used[str(key.value)] = where
    return used


def test_every_key_is_in_the_table_and_every_entry_is_used() -> None:
    used = used_keys()
    assert {key: where for key, where in used.items() if key not in KEYS} == {}
    assert set(KEYS) - set(used) - OF_THE_PROCESS == set()


@pytest.mark.parametrize("key", KEYS)
def test_log_key_does_not_shadow_standard_fields(key: str) -> None:
    record = logging.makeLogRecord({})
    assert not hasattr(record, key)
    assert key not in {"message", "asctime", "time", "level", "logger", "msg"}
