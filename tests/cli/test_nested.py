"""Commands with subcommands: help and examples."""

from __future__ import annotations

import pytest

from rookery.cli.main import main

NESTED = {
    "topics": ("list", "create", "describe", "delete", "alter"),
    "perf": ("produce", "consume", "latency"),
}
CASES = [(name, nested) for name, all_nested in NESTED.items() for nested in all_nested]


@pytest.mark.parametrize(("name", "nested"), CASES)
def test_each_nested_command_has_an_example_and_json(
    name: str, nested: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, nested, "--help"])

    text = capsys.readouterr().out
    assert caught.value.code == 0
    assert f"example:\n  rookery {name} {nested}" in text
    assert "--json" in text
    assert "--bootstrap" in text


@pytest.mark.parametrize("name", NESTED)
def test_command_without_a_nested_command_lists_them(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name]) == 2

    text = capsys.readouterr().out
    assert all(nested in text for nested in NESTED[name])
