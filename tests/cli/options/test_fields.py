"""A class of arguments becomes an argument parser, and parsed values become an instance."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass

import pytest

from rookery.cli.options.fields import (
    add_arguments,
    custom,
    option,
    part,
    positional,
    read_arguments,
    repeated,
    switch,
)


@dataclass(frozen=True, kw_only=True)
class Nest:
    """A part inside a part."""

    twigs: int = option("--twigs", type=int, default=7, help="how many")


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A part."""

    kind: str = option("--kind", choices=("oak", "elm"), default="oak", help="which")
    nest: Nest = part(Nest)
    bare: bool = switch("--bare", at_most_one_of="leaves", help="no leaves")
    green: bool = switch("--green", at_most_one_of="leaves", help="leaves")


def _add_song(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--song", dest="a song", help="what it sings")


def _read_song(parsed: Mapping[str, object]) -> object:
    return parsed.get("a song")


@dataclass(frozen=True, kw_only=True)
class Birds:
    """Arguments of every kind."""

    names: tuple[str, ...] = positional("BIRD", "which", nargs="+")
    colour: str | None = option("-c", "--colour", group="looks", help="its colour")
    spot: tuple[str, ...] = repeated("--spot", metavar="WHERE", help="where it has spots")
    loud: bool = switch("--loud", help="whether it is loud")
    here: bool = switch("--here", one_of="place", help="near")
    there: int | None = option("--there", one_of="place", type=int, help="so far away")
    tree: Tree = part(Tree, "the tree", "where it lives")
    song: str | None = custom(_add_song, _read_song)


def parse(*words: str) -> Birds:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser, Birds)
    return read_arguments(Birds, vars(parser.parse_args(words)))


def test_defaults() -> None:
    assert parse("rook", "--here") == Birds(names=("rook",), here=True)
    assert Birds(names=("rook",)).tree == Tree(kind="oak", nest=Nest(twigs=7))


def test_every_kind_of_argument_is_read() -> None:
    words = "rook jay -c black --spot head --spot tail --loud --there 3 --kind elm --twigs 2"
    assert parse(*words.split(), "--song", "tchack") == Birds(
        names=("rook", "jay"),
        colour="black",
        spot=("head", "tail"),
        loud=True,
        there=3,
        tree=Tree(kind="elm", nest=Nest(twigs=2)),
        song="tchack",
    )


@dataclass(frozen=True, kw_only=True)
class Rookery:
    """A part with a default of its own."""

    nest: Nest = part(Nest, twigs=40)


def test_nested_arguments_can_have_other_defaults() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, Rookery)

    assert Rookery().nest.twigs == 40
    assert read_arguments(Rookery, vars(parser.parse_args([]))).nest.twigs == 40
    assert read_arguments(Rookery, vars(parser.parse_args(["--twigs", "3"]))).nest.twigs == 3
    assert parse("rook", "--here").tree.nest.twigs == 7


def test_repeated_values_do_not_leak_into_the_next_parse() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, Birds)
    for _ in range(2):
        parsed = parser.parse_args(["rook", "--here", "--spot", "head"])
        assert read_arguments(Birds, vars(parsed)).spot == ("head",)


@pytest.mark.parametrize("words", [("rook",), ("rook", "--here", "--there", "3")])
def test_exactly_one_of_alternatives_is_needed(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, Birds)
    with pytest.raises(SystemExit):
        parser.parse_args(words)
    assert "--here" in capsys.readouterr().err


def test_at_most_one_of_alternatives_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse("rook", "--here", "--bare").tree.bare
    parser = argparse.ArgumentParser()
    add_arguments(parser, Birds)
    with pytest.raises(SystemExit):
        parser.parse_args(["rook", "--here", "--bare", "--green"])
    assert "not allowed with" in capsys.readouterr().err


def test_help_has_groups_and_readable_names() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, Birds)
    text = parser.format_help()
    assert "the tree:\n  where it lives\n" in text
    assert "looks:\n  -c COLOUR, --colour COLOUR" in text
    assert "--twigs TWIGS" in text
    assert "--kind {oak,elm}" in text


def test_arguments_are_frozen() -> None:
    birds = parse("rook", "--here")
    with pytest.raises(FrozenInstanceError):
        birds.loud = True  # type: ignore[misc]  # what is tested
