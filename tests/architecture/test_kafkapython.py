"""Tests create kafka-python's clients from tests/kafkapython.py, which closes their sockets."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

_CLIENTS: Final = {"KafkaConsumer", "KafkaProducer", "KafkaAdminClient"}
_TESTS: Final = Path(__file__).parent.parent
_ALLOWED: Final = {
    _TESTS / "kafkapython.py",  # the only place that derives from them
    _TESTS / "golden" / "record.py",  # a script that records answers; no test runs it
}


def client_uses(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that take a client from the package `kafka` itself."""
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {
                name.asname or "kafka"
                for name in node.names
                if name.name.partition(".")[0] == "kafka"
            }
        elif isinstance(node, ast.ImportFrom) and not node.level:
            is_kafka = (node.module or "").partition(".")[0] == "kafka"
            if is_kafka and any(name.name in _CLIENTS for name in node.names):
                yield node.lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _CLIENTS:
            owner = ast.unparse(node.value).partition(".")[0]
            if owner in modules:
                yield node.lineno


def test_no_test_takes_a_client_from_kafka_python_itself() -> None:
    uses = [
        f"{path.relative_to(_TESTS)}:{line}"
        for path in sorted(_TESTS.rglob("*.py"))
        if path not in _ALLOWED and "kafka" in (text := path.read_text())
        for line in client_uses(ast.parse(text))
    ]
    assert uses == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("from kafka import KafkaProducer, TopicPartition", [1]),
        ("from kafka.admin import KafkaAdminClient as Admin", [1]),
        ("def run():\n    from kafka import KafkaConsumer", [2]),
        ("import kafka\nkafka.KafkaConsumer()", [2]),
        ("import kafka.admin as theirs\ntheirs.KafkaAdminClient()", [2]),
        ("import kafka.admin\nkafka.admin.KafkaAdminClient()", [2]),
        ("from kafka import TopicPartition", []),
        ("from tests.kafkapython import KafkaConsumer", []),
        ("from tests import kafkapython\nkafkapython.KafkaConsumer()", []),
    ],
)
def test_each_way_to_take_a_client_is_detected(text: str, lines: list[int]) -> None:
    assert list(client_uses(ast.parse(text))) == lines
