"""Kafka's command line tools, sent to one broker."""

from __future__ import annotations

from rookery.testing.tools import ToolHost

Row = dict[str, str]


class Tool:
    """Runs tools against one broker; each must end well."""

    def __init__(self, tools: ToolHost, bootstrap: str) -> None:
        self._tools = tools
        self._server = ("--bootstrap-server", bootstrap)

    def __call__(self, name: str, *args: str, text: str | None = None) -> str:
        """Return what a tool says, which may read a text."""
        done = self._tools.tool(name, *self._server, *args, text=text)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def refused(self, name: str, *args: str) -> str:
        """Return all that a tool says which the broker refuses something."""
        done = self._tools.tool(name, *self._server, *args)
        return done.stdout + done.stderr

    def rows(self, name: str, *args: str) -> list[Row]:
        """Return the table that a tool prints, each row by the names of the columns."""
        lines = [line.split() for line in self(name, *args).splitlines() if line.strip()]
        head, *rows = lines or [[]]
        return [dict(zip(head, row, strict=False)) for row in rows]

    def read(self, topic: str, count: int, *args: str) -> list[str]:
        """Return some records of a topic, from the beginning or where a group has stopped."""
        options = ("--topic", topic, "--max-messages", str(count), "--timeout-ms", "30000")
        return self("kafka-console-consumer", *options, "--from-beginning", *args).splitlines()


def sort_items(line: str) -> str:
    """Return a line that a tool printed with its list sorted: Java prints sets in any order.

    Some lists follow a sentence that ends with "are".
    """
    head, mark, items = line.rpartition(" are ")
    return head + mark + ", ".join(sorted(items.split(", ")))
