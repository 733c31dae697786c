"""Compiled modules are used if they exist; if not, one warning is given."""

from __future__ import annotations

import cmath
import json
import math
import subprocess
import sys
import warnings

import pytest

from rookery import native


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_loaded", {})
    monkeypatch.setattr(native, "_modules", {})


def test_the_compiled_module_is_preferred() -> None:
    assert native.load("math", "cmath") is math
    assert native.report() == [native.NativeStatus("math", "cmath", "")]
    assert native.report()[0].is_compiled


def test_twin_replaces_a_missing_module_with_one_warning() -> None:
    with pytest.warns(RuntimeWarning, match=r"no_such_a is not compiled.*rookery doctor"):
        assert native.load("rookery.no_such_a", "cmath") is cmath
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert native.load("rookery.no_such_b", "json") is json
        assert native.load("rookery.no_such_a", "cmath") is cmath
    reasons = [(status.native, status.is_compiled) for status in native.report()]
    assert reasons == [("rookery.no_such_a", False), ("rookery.no_such_b", False)]
    assert "no_such_a" in native.report()[0].reason


HIDDEN = """
import sys, warnings
sys.modules["rookery.records._kernel"] = None
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from rookery.records.recordcodec import Record, build, read_all
assert [w.category for w in caught] == [RuntimeWarning], caught
from rookery.records import kernel
from rookery.records.twins import kerneltwin
assert kernel.scan is kerneltwin.scan
assert [record.value for record in read_all(build([Record(b"k", b"v")]))] == [b"v"]
"""


def test_records_work_without_the_kernel() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
