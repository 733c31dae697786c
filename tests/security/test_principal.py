"""Principals, super users, and rules that map names of certificates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import ConfigError
from rookery.security.principal import (
    ANONYMOUS,
    MAX_RULES_LENGTH,
    Principal,
    PrincipalMapping,
    parse_super_users,
)
from tests.security.dercases import INVALID_RULES, RULES


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("User:alice", "User", "alice"),
        ("User:CN=a:b,O=c", "User", "CN=a:b,O=c"),
        ("User:*", "User", "*"),
        ("Team:x", "Team", "x"),
        ("User:", "User", ""),
    ],
)
def test_a_principal_has_a_kind_and_a_name(text: str, kind: str, name: str) -> None:
    assert Principal.parse(text) == Principal(kind, name)
    assert str(Principal(kind, name)) == text


@pytest.mark.parametrize("text", ["", "alice", ":alice"])
def test_text_without_type_and_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Type:name"):
        Principal.parse(text)


def test_an_anonymous_client_has_kafkas_name() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"


def test_super_users_are_separated_by_semicolons() -> None:
    text = " User:admin; User:CN=broker,O=x ;; "

    assert parse_super_users(text) == ("User:admin", "User:CN=broker,O=x")
    assert parse_super_users("") == ()


def test_a_super_user_without_a_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"super_users.*User:admin"):
        parse_super_users("User:a;admin")
    with pytest.raises(ConfigError, match=r"super_users.*User:admin"):
        parse_super_users(":admin")


@pytest.mark.parametrize(("rules", "name", "expected"), RULES)
def test_rules_map_names(rules: str, name: str, expected: str | None) -> None:
    assert PrincipalMapping(rules).apply(name) == expected


@pytest.mark.parametrize(
    "rules",
    [
        *INVALID_RULES,
        "RULE:(?=a)a/b/",
        r"RULE:(a)\1/b/",
        "RULE:a/$1/",
        "RULE:(a)/$x/",
        "RULE:(a)/${nobody}/",
        "RULE:a{100000}/b/",
        "RULE:a/" + "x" * MAX_RULES_LENGTH + "/",
    ],
)
def test_rules_that_cannot_be_used_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        PrincipalMapping(rules)


def test_a_pattern_that_would_backtrack_is_fast() -> None:
    mapping = PrincipalMapping("RULE:^(a+)+$/x/,DEFAULT")
    name = "a" * 5_000 + "b"

    assert mapping.apply(name) == name


@given(st.text())
def test_the_default_keeps_every_name(name: str) -> None:
    assert PrincipalMapping().apply(name) == name


@given(st.text(st.characters(codec="utf-8")))
def test_a_rule_can_take_any_name(name: str) -> None:
    mapped = PrincipalMapping("RULE:^CN=([^\\n]*)$/$1/,DEFAULT").apply(f"CN={name}")

    assert mapped == (name if "\n" not in name else f"CN={name}")
