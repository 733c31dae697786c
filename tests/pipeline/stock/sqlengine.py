"""Stock Spark and stock DuckDB, each in a process and an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rookery.spark.java import find_java
from rookery.testing.environment import DUCKDB, SPARK, install_environment
from rookery.testing.jars import DELTA, ICEBERG, bundle_jars

Row = dict[str, Any]
_SHELL = Path(__file__).with_name("shell.py")


class SqlEngine:
    """A process that executes statements; it ends when its input does."""

    def __init__(self, python: Path, arguments: list[str], folder: Path) -> None:
        """Start it in a folder, which gets its log."""
        folder.mkdir()
        self._log = folder / "engine.log"
        self._statements = 0
        variables = {"TZ": "UTC", "JAVA_HOME": str(find_java(os.environ))}
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(python), "-I", str(_SHELL), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
                env={**kept, **variables},
                text=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=60)

    def execute(self, statement: str) -> list[Row]:
        """Return the rows of a statement."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._statements += 1
        self._process.stdin.write(json.dumps([self._statements, statement]) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = {"number": 0}
        # A statement whose test has timed out is answered later.
        while answer["number"] < self._statements:
            line = self._process.stdout.readline()
            assert line, f"{statement}\nthe process has ended\n{self._last_lines()}"
            answer = json.loads(line)
        assert "error" not in answer, f"{statement}\n{answer['error']}\n{self._last_lines()}"
        rows: list[Row] = answer["rows"]
        return rows

    def _last_lines(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def stock_spark(catalog: Path, folder: Path) -> SqlEngine:
    """Start Spark with a catalog of Iceberg tables; install it the first time."""
    jars = [
        str(jar) for bundle in (ICEBERG, DELTA) for jar in sorted(bundle_jars(bundle).glob("*.jar"))
    ]
    arguments = ["spark", ",".join(jars), str(catalog)]
    return SqlEngine(install_environment(SPARK), arguments, folder)


def stock_duckdb(folder: Path) -> SqlEngine:
    """Start DuckDB with its extensions for Iceberg and Delta; install it the first time."""
    return SqlEngine(install_environment(DUCKDB), ["duckdb"], folder)
