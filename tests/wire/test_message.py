"""Message classes: constructors, equality, defaults."""

from __future__ import annotations

import pytest

from rookery.wire.catalog import apis
from rookery.wire.message import Message, field, i32
from rookery.wire.messages.fetch import FetchRequest, FetchTopic
from rookery.wire.table import structures


class Outer(Message, versions=range(3), flexible=2):
    """A message for this test."""

    number: i32
    names: list[str] = field(factory=list)
    inner: list[Inner]


class Inner(Message):
    """A structure that is defined below the message that holds it."""

    text: str = ""


def test_a_constructor_takes_the_fields_by_name() -> None:
    made = Outer(number=1, inner=[Inner(text="x")])
    assert (made.number, made.names, made.inner[0].text) == (1, [], "x")


def test_a_missing_field_is_an_error() -> None:
    with pytest.raises(TypeError, match="number"):
        Outer(inner=[])  # type: ignore[call-arg] # the point


def test_an_unknown_field_is_an_error() -> None:
    with pytest.raises(TypeError, match="colour"):
        Inner(colour="red")  # type: ignore[call-arg] # the point


def test_default_lists_are_not_shared() -> None:
    first, second = Outer(number=1, inner=[]), Outer(number=1, inner=[])
    first.names.append("a")
    assert second.names == []


def test_equality_is_by_value() -> None:
    assert Inner(text="a") == Inner(text="a")
    assert Inner(text="a") != Inner(text="b")
    assert Inner(text="a") != "a"


def test_replace_copies() -> None:
    made = Inner(text="a")
    made.unknown_tags = {1: b""}
    changed = made.replace(text="b")
    assert (made.text, changed.text, changed.unknown_tags) == ("a", "b", {1: b""})


def test_structures_are_listed_outermost_first() -> None:
    assert list(structures(Outer)) == [Outer, Inner]
    assert FetchTopic in list(structures(FetchRequest))


def test_repr_shows_the_fields() -> None:
    assert repr(Outer(number=1, inner=[Inner()])) == (
        "Outer(number=1, names=[], inner=[Inner(text='')])"
    )


def test_every_class_has_a_docstring() -> None:
    for api in apis().values():
        for cls in (*structures(api.request), *structures(api.response)):
            assert cls.__doc__ is not None, cls
            assert len(cls.__doc__) > 8, cls
