"""Every backend of a port is tested by the port's contract."""

from __future__ import annotations

import ast
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from rookery.cluster import backends as cluster_logs
from rookery.store import backends as stores

TESTS = Path(__file__).parents[1]
# Stores without a server that tests could start, and why the rest is tested all the same.
EXCUSED = {
    "az": "the same client as s3, with another configuration",
    "gs": "the same client as s3, with another configuration",
    "kafkadir": "read-only, so that most of the contract does not apply",
}


def backends(folder: ModuleType) -> set[str]:
    return {module.name for module in pkgutil.iter_modules(folder.__path__)}


def contracted(contract: str) -> set[str]:
    """The backends whose own test file has a class of the contract."""
    return {
        path.stem.removeprefix("test_")
        for path in TESTS.rglob("test_*.py")
        if any(contract in bases for bases in class_bases(path))
    }


def class_bases(path: Path) -> Iterator[set[str]]:
    text = path.read_text("utf-8")
    if "Contract)" in text:
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef):
                yield {ast.unparse(base) for base in node.bases}


@pytest.mark.parametrize(
    ("folder", "contract"),
    [(cluster_logs, "ClusterLogContract"), (stores, "StoreContract")],
    ids=["cluster logs", "stores"],
)
def test_every_backend_has_a_test_file_with_the_contract(folder: ModuleType, contract: str) -> None:
    assert backends(folder) - contracted(contract) - EXCUSED.keys() == set()


def test_backend_without_the_contract_is_detected() -> None:
    assert "etcd" in contracted("ClusterLogContract")
    assert "etcd" not in contracted("StoreContract")
    assert EXCUSED.keys() <= backends(stores)
