"""A URL's scheme chooses a backend and nothing else: what callers need to know is a trait of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import rookery

SOURCE = Path(rookery.__file__).parent
SCHEMES = frozenset(
    path.stem
    for layer in ("cluster", "store")
    for path in (SOURCE / layer / "backends").glob("[a-z]*.py")
)
ALLOWED = {
    "client/properties.py": "Java's clients name the file of a token by a URL",
    "cluster/open.py": "finds the backend of a cluster log",
    "cluster/backends/": "a backend parses its own URLs",
    "cluster/etcd/address.py": "parses the URLs of the backend etcd",
    "store/open.py": "finds the backend of a store",
    "store/backends/": "a backend parses its own URLs",
    "store/address.py": "parses the URLs of the backends s3, gs and az",
    "decode/registry.py": "the scheme of a schema registry is that of HTTP",
    "net/httpcodec.py": "the scheme of a request is that of HTTP",
    "spark/checkpoint.py": "Spark's own locations have the schemes of Hadoop's file systems",
    "testing/": "the test kit starts servers, whose URLs it makes",
}
"""Where schemes are looked at, by the beginning of the path; and why."""
_PREFIX_CALLS = frozenset({"startswith", "removeprefix"})
_CUTS = (".partition(':')", ".split(':'")


def sniffs(text: str) -> Iterator[tuple[int, str]]:
    """Find where a module looks at the scheme of a URL."""
    # Parsing takes most of the time: a module without any of these words need not be parsed.
    if not (".scheme" in text or any(re.search(rf"['\"]{scheme}\b", text) for scheme in SCHEMES)):
        return
    for node in ast.walk(ast.parse(text)):
        if (isinstance(node, ast.Attribute) and node.attr == "scheme") or (
            (isinstance(node, ast.Call) and is_prefix_call(node))
            or (isinstance(node, ast.Compare) and is_comparison(node))
        ):
            yield node.lineno, ast.unparse(node)


def is_prefix_call(call: ast.Call) -> bool:
    """Whether a text is asked for the scheme of a backend."""
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr in _PREFIX_CALLS
    return is_method and any(text.partition(":")[0] in SCHEMES for text in texts(call, mark=":"))


def is_comparison(compare: ast.Compare) -> bool:
    """Whether what comes before a colon is compared with the scheme of a backend."""
    is_cut = any(cut in ast.unparse(compare.left) for cut in _CUTS)
    return is_cut and any(text in SCHEMES for text in texts(compare))


def texts(node: ast.AST, mark: str = "") -> list[str]:
    """Return the constant texts in an expression that have a mark in them."""
    constants = (
        constant.value for constant in ast.walk(node) if isinstance(constant, ast.Constant)
    )
    return [value for value in constants if isinstance(value, str) and mark in value]


def test_only_backends_and_their_lookup_inspect_url_schemes() -> None:
    modules = ((str(path.relative_to(SOURCE)), path) for path in sorted(SOURCE.rglob("*.py")))
    looked_at = [
        f"{name}:{line} {code}"
        for name, path in modules
        if not name.startswith(tuple(ALLOWED))
        for line, code in sniffs(path.read_text("utf-8"))
    ]

    assert looked_at == []


@pytest.mark.parametrize(
    "code",
    [
        "url.startswith('sqlite:')",
        "url.startswith(('s3://', 'file://'))",
        "Path(url.removeprefix('file://'))",
        "urlsplit(url).scheme",
        "url.partition(':')[0] not in {'sqlite', 'store'}",
        "url.split(':', 1)[0] == 'etcd'",
    ],
)
def test_scheme_inspection_is_detected(code: str) -> None:
    assert len(list(sniffs(code))) == 1


@pytest.mark.parametrize(
    "code",
    [
        "name.startswith('__')",
        "endpoint.startswith('http:')",
        "mode == 'memory'",
        "address.partition(':')[0] == 'localhost'",
        "open_store('memory:')",
    ],
)
def test_code_without_a_scheme_inspection_is_not_reported(code: str) -> None:
    assert list(sniffs(code)) == []
