"""Regular expressions over topic names: as Python's where both know the syntax, but never slow."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.broker.groups.regex import Regex
from rookery.errors import ApiError, ErrorCode

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
def test_it_matches_what_python_matches(text: str) -> None:
    flagged = re.sub(r"^(.*)\(\?s\)", r"(?s:\1)", text)
    if text == "(a|(?i)b)c?":
        flagged = "(a|(?i:b))c?"
    expected = [name for name in NAMES if re.fullmatch(flagged, name)]
    assert Regex(text).matching(NAMES) == expected


@pytest.mark.parametrize(
    ("text", "name"),
    [(r"\Qa.b\E", "a.b"), (r"a\Q.", "a."), ("[[:alpha:]]+", "ab"), ("[[:^alpha:]]", "1"),
     (r"\x{61}", "a"), ("(?<name>a)", "a"), ("(?i-s:A)", "a"), (r"[^\D]", "1"), (r"a\z", "a")],
)  # fmt: skip
def test_it_knows_the_syntax_of_re2(text: str, name: str) -> None:
    assert Regex(text).fullmatch(name)
    assert not Regex(text).fullmatch("")


@pytest.mark.parametrize(
    "text",
    ["(", ")", "(a", "a)", "[", "[a", "*", "a**", "a{2}{3}", r"\1", r"(a)\1", "(?=a)", "(?!a)",
     "(?<=a)b", "(?P=n)", "a{3,2}", "a{1001}", "[b-a]", r"[a-\d]", "[[:nothing:]]", r"\p{Greek}",
     "\\", r"\x{110000}", r"\xg1", "(?z)", "(?P<>a)", "a" * 5_000, "(" * 60 + ")" * 60,
     "((a{1000}){1000}){1000}"],
)  # fmt: skip
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        Regex(text)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(
    "text", ["(a+)+c", "(a*)*c", "(a|aa)+c", ".*.*.*.*.*.*c", "(a?){60}a{60}c"]
)
def test_work_grows_with_the_states_and_the_name_alone(text: str) -> None:
    regex, name = Regex(text), "a" * 249
    assert not regex.fullmatch(name)
    assert regex._steps <= len(regex._states) * (len(name) + 1)


def test_work_is_bounded() -> None:
    regex = Regex("(.*a.{200}|.*b.{200}){1,2}")
    with pytest.raises(ApiError, match="too much work"):
        regex.matching([f"{'ab' * (number % 120)}{number:x}" for number in range(10_000)])


def test_what_ten_thousand_names_have_in_common_is_worked_out_once() -> None:
    names = [f"team-{number % 50}.orders.v{number}" for number in range(10_000)]
    regex = Regex(r"team-(7|8)\.orders\..*")
    assert len(regex.matching(names)) == 400
    assert regex._steps < 10 * len(names)


def test_what_repeats_nothing_takes_no_time() -> None:
    assert Regex("((((){1000}){1000}){1000}){1000}").fullmatch("")


@given(text=st.text(alphabet="ab1.*+?|()[]^$\\{}-,:dwQE2", max_size=9), name=st.sampled_from(NAMES))
def test_any_text_is_an_expression_or_is_refused(text: str, name: str) -> None:
    try:
        expression = Regex(text)
    except ApiError:
        return
    assert expression.matching([name]) == [name] * expression.fullmatch(name)
