"""Every command, found by a walk over the parsers: help, an example that parses, JSON."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator

import pytest

from rookery.cli.main import make_parser


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield all parsers of commands, nested ones too."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield command
                yield from commands(command)


ROOT = make_parser()
COMMANDS = {parser.prog: parser for parser in commands(ROOT)}


def examples(parser: argparse.ArgumentParser) -> list[list[str]]:
    """Return the arguments of every `rookery …` in a command's examples."""
    title, _, text = (parser.epilog or "").partition("\n")
    assert title == "example:", parser.prog
    invocations: list[list[str]] = []
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line)
        while "rookery" in words:
            words = words[words.index("rookery") + 1 :]
            end = next((at for at, word in enumerate(words) if word in {"|", ">", "&&"}), None)
            invocations.append(words[:end])
    return invocations


def test_commands_are_found() -> None:
    assert {"rookery broker", "rookery topics list", "rookery job compact"} <= COMMANDS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_help_an_example_and_json(name: str) -> None:
    parser = COMMANDS[name]
    text = parser.format_help()

    assert parser.description
    assert parser.description in " ".join(text.split())
    for action in parser._actions:
        assert action.help or isinstance(action, argparse._SubParsersAction), action
    assert "--json" in text
    lines = examples(parser)
    assert lines
    own = name.split()[1:]
    for words in lines:
        assert words[: len(own)] == own
        ROOT.parse_args(words)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_takes_json_after_its_name_and_before_it(name: str) -> None:
    for words in examples(COMMANDS[name]):
        depth = len(name.split()) - 1
        assert ROOT.parse_args([*words[:depth], "--json", *words[depth:]]).json
        if depth == 2:
            assert ROOT.parse_args([words[0], "--json", *words[1:]]).json
