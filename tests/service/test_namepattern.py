"""Patterns over names: RE2's syntax, whole names, clean refusals, bounded work."""

from __future__ import annotations

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import ApiError, ErrorCode
from rookery.service import namepattern
from rookery.service.namepattern import NamePattern

NAMES = ["", "a", "b", "aa", "ab", "ba", "abc", "a.b", "a-b", "a_b", "A", "AB", "orders",
         "orders-1", "orders.eu", "x1", "1", "11", "a1b2", "aaab"]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "a*", "a+b?", "a|b", "(a|b)*", "orders.*", r"orders\.eu", "[ab]+", "[^ab]",
        "[a-c]+", "[]a]", "[a-]+", r"[\w.-]+", r"\d+", r"\D", r"\w\W\w", "(?:ab)+", "(?P<name>a)b",
        "(?i)ab", "(?i:a)B", "(a|(?i)b)c?", "a{2}", "a{2,}b?", "a{1,3}", "a{x}", "a*?", "a+?b??",
        "^a$", "^^a", "a^b", "(^a|b$)+", r"\bab\b", r"a\b.b", r"a\Bb", r"\x61", "(a*)*", "(a*)+",
        "()", "|a", "a||b", "(?i)[a-b]+", "[^a](?s)1", r"\Aa\Z|b".replace(r"\Z", "$"), "((a)(b)?)+",
    ],
)  # fmt: skip
def test_common_syntax_matches_as_in_python(text: str) -> None:
    flagged = re.sub(r"^(.*)\(\?s\)", r"(?s:\1)", text)
    if text == "(a|(?i)b)c?":
        flagged = "(a|(?i:b))c?"
    expected = [name for name in NAMES if re.fullmatch(flagged, name)]
    assert NamePattern(text).select(NAMES) == expected


@pytest.mark.parametrize(
    ("text", "name"),
    [(r"\Qa.b\E", "a.b"), (r"a\Q.", "a."), ("[[:alpha:]]+", "ab"), ("[[:^alpha:]]", "1"),
     (r"\x{61}", "a"), ("(?<name>a)", "a"), ("(?i-s:A)", "a"), (r"[^\D]", "1"), (r"a\z", "a")],
)  # fmt: skip
def test_syntax_of_re2_is_known(text: str, name: str) -> None:
    assert NamePattern(text).matches(name)
    assert not NamePattern(text).matches("")


@pytest.mark.parametrize(
    "text",
    ["(", ")", "(a", "a)", "[", "[a", "*", "a**", "a{2}{3}", r"\1", r"(a)\1", "(?=a)", "(?!a)",
     "(?<=a)b", "(?P=n)", "a{3,2}", "a{1001}", "[b-a]", r"[a-\d]", "[[:nothing:]]",
     "\\", r"\x{110000}", r"\xg1", "(?z)", "(?P<>a)", "a" * 5_000, "((a{1000}){1000}){1000}",
     r"\p{Klingon}", r"\pL{100}"],
)  # fmt: skip
def test_invalid_pattern_is_refused(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        NamePattern(text)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(
    "text", ["(a+)+c", "(a*)*c", "(a|aa)+c", ".*.*.*.*.*.*c", "(a?){60}a{60}c"]
)
def test_pattern_that_makes_others_backtrack_is_matched(text: str) -> None:
    pattern = NamePattern(text)
    names = [f"{'a' * 249}{number}" for number in range(1_000)]
    assert pattern.select([*names, "a" * 70 + "c"]) == ["a" * 70 + "c"]


def test_work_is_bounded() -> None:
    pattern = NamePattern("(.*a.{200}|.*b.{200}){1,2}")
    names = [f"{'ab' * (number % 120)}{number:x}" for number in range(10_000)]
    with pytest.raises(ApiError, match="10000 names is too much work") as caught:
        pattern.select(names)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert pattern.select(names[:10]) == []


def test_small_pattern_is_matched_against_any_number_of_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(namepattern, "MAX_WORK", 1)
    names = [f"team-{number % 50}.orders.v{number}" for number in range(10_000)]
    assert len(NamePattern(r"team-(7|8)\.orders\..*").select(names)) == 400


def test_names_need_not_be_ascii() -> None:
    names = ["größe", "grösse", "日本", "a\nb"]
    assert NamePattern(r"gr\pL+e").select(names) == ["größe", "grösse"]
    assert NamePattern("..").select(names) == ["日本"]


def test_missing_library_is_a_clean_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    namepattern._load.cache_clear()

    with pytest.raises(ApiError, match="pip install google-re2") as caught:
        NamePattern("a.*")

    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@given(text=st.text(alphabet="ab1.*+?|()[]^$\\{}-,:dwQE2", max_size=9), name=st.sampled_from(NAMES))
def test_any_text_is_a_pattern_or_is_refused(text: str, name: str) -> None:
    try:
        pattern = NamePattern(text)
    except ApiError:
        return
    assert pattern.select([name]) == [name] * pattern.matches(name)
