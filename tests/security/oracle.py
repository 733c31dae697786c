"""Kafka's and Java's own security code, as oracle for tests."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rookery.testing.java import Java

SOURCE: Final = Path(__file__).parent / "java" / "SecurityOracle.java"


@dataclass(frozen=True)
class SecurityOracle:
    """A compiled program that answers one JSON line per question."""

    java: Java
    classes: Path

    @classmethod
    def compile(cls, java: Java, folder: Path) -> SecurityOracle:
        java.compile(SOURCE, folder)
        return cls(java, folder)

    def ask(self, questions: Iterable[dict[str, Any]]) -> list[list[Any]]:
        """Answer questions, in order."""
        done = subprocess.run(
            self.java.command("SecurityOracle", classes=self.classes),
            input="".join(json.dumps(question) + "\n" for question in questions),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return [json.loads(line) for line in done.stdout.split("\n")[:-1]]
