"""`rookery demo --proxy`: a proxy renames topics and writes an audit; its upstream is killed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from rookery.cli.command import print_json
from rookery.cli.demo.childbroker import ChildBroker
from rookery.cli.demo.childserver import ChildServer, free_address
from rookery.cli.demo.demofolder import DemoFolder, run_in_folder
from rookery.cli.demo.records import TOPIC, RecordsDemo
from rookery.cli.demo.summary import Summary
from rookery.cli.output.tables import make_table, open_console
from rookery.client.client import Client
from rookery.net.loop import run_loop

_PREFIX: Final = "tenant."
_RENAME: Final = "names"
_AUDIT: Final = "audit"
# What `rookery proxy --json` prints when it serves.
_READY: Final = b'{"clusters"'


def run_proxy_demo(records: int, durability: str, *, as_json: bool) -> int:
    """Run the demo; return 0 if clients saw every record once, under the name of the proxy."""
    console = open_console(is_quiet=as_json)

    def run(folder: DemoFolder) -> ProxyOutcome:
        upstream = folder.add(_ProxiedBroker(folder.path, durability))
        return run_loop(_run(upstream, records, console))

    outcome = run_in_folder(run)
    outcome.show(console, as_json=as_json)
    return 0 if outcome.is_sound else 1


class _ProxiedBroker:
    """A broker that is killed, and a proxy in front of it that keeps running."""

    def __init__(self, folder: Path, durability: str) -> None:
        self.broker = ChildBroker(folder, durability)
        self.bootstrap = free_address({self.broker.bootstrap})
        self.audit = folder / "audit.jsonl"
        file = folder / "proxy.toml"
        file.write_text(_settings(self.broker.bootstrap, self.bootstrap, self.audit), "utf-8")
        self._proxy = ChildServer("proxy", _READY, folder, ["--config", str(file)])
        self._is_proxied = False

    async def start(self) -> float:
        """Start the broker, and the first time the proxy, too; return how many seconds it took."""
        seconds = await self.broker.start()
        if not self._is_proxied:
            seconds += await self._proxy.start()
            self._is_proxied = True
        return seconds

    def kill(self) -> None:
        """End the broker as a crash would; the proxy stays."""
        self.broker.kill()

    def stop(self) -> None:
        """Stop the proxy in order, so that its audit is complete; the broker stays."""
        self._proxy.stop()

    def end(self) -> None:
        """Kill both, and return when nothing writes to the folder."""
        self._proxy.end()
        self.broker.end()


@dataclass(frozen=True, slots=True)
class ProxyOutcome:
    """The results for clients of the proxy, and the contents of the upstream and of the audit."""

    summary: Summary
    topics: tuple[str, ...]
    """The topics of the upstream."""
    audit_lines: int
    """How many requests the audit has."""

    @property
    def is_sound(self) -> bool:
        """Whether nothing is lost, the topic is renamed, and the audit is written."""
        is_renamed = _PREFIX + TOPIC in self.topics and TOPIC not in self.topics
        return self.summary.is_sound and is_renamed and self.audit_lines > 0

    def show(self, console: Console, *, as_json: bool) -> None:
        """Print it."""
        if as_json:
            print_json({**self.summary.as_json(), "sound": self.is_sound, "proxy": self._figures()})
            return
        self.summary.show(console, as_json=False)
        table = make_table(("what clients saw", ""), right=("",))
        for name, value in self._figures().items():
            shown = f"{value:,}" if isinstance(value, int) else str(value)
            table.add_row(name.replace("_", " "), shown)
        console.print(table)

    def _figures(self) -> dict[str, object]:
        verdicts = self.summary.verdicts
        return {
            "topic_of_clients": TOPIC,
            "topic_in_the_upstream": ", ".join(self.topics),
            "sent": sum(each.sent for each in verdicts),
            "acknowledged": self.summary.produced.records,
            "read": sum(each.received for each in verdicts),
            "doubled": sum(each.duplicated for each in verdicts),
            "missing": sum(each.lost for each in verdicts),
            "batches_sent_again": self.summary.crash.resent_batches,
            "audit_lines": self.audit_lines,
        }


async def _run(upstream: _ProxiedBroker, records: int, console: Console) -> ProxyOutcome:
    summary = await RecordsDemo(upstream, records, console).run()
    async with Client(upstream.broker.bootstrap) as client:
        topics = tuple(sorted(await client.admin.list_topics()))
    return ProxyOutcome(summary, topics, _count_lines(upstream.audit))


def _settings(upstream: str, listen: str, audit: Path) -> str:
    """Return the file of the proxy."""
    # Text in JSON is text in TOML, too.
    lines = [
        "[proxy]",
        'http_listen = ""',
        "[proxy.clusters.demo]",
        f"upstream = {json.dumps(upstream)}",
        f"listen = {json.dumps(listen)}",
        f"filters = {json.dumps([_RENAME, _AUDIT])}",
        f"[proxy.filter.{_RENAME}]",
        'type = "topic_prefix"',
        f"options = {{prefix = {json.dumps(_PREFIX)}}}",
        f"[proxy.filter.{_AUDIT}]",
        f"options = {{file = {json.dumps(str(audit))}}}",
    ]
    return "\n".join(lines) + "\n"


def _count_lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines()) if path.exists() else 0
