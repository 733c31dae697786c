"""A topic as `rookery topics describe` and `alter` print it."""

from __future__ import annotations

from rookery.cli.output.tables import make_table, number_text, open_console
from rookery.client.views.configs import ConfigOverview
from rookery.client.views.topics import TopicOverview


def topic_as_json(topic: TopicOverview, *, every_config: bool) -> dict[str, object]:
    """Return a topic for scripts."""
    return {
        "name": topic.name,
        "id": topic.id,
        "partitions": [
            {
                "partition": one.partition,
                "leader": one.leader,
                "replicas": one.replicas,
                "isr": one.isr,
                "start": one.start,
                "end": one.end,
            }
            for one in topic.partitions
        ],
        "configs": {one.name: one.value for one in _configs(topic, every=every_config)},
    }


def print_topic(topic: TopicOverview, *, every_config: bool) -> None:
    """Print a topic for people."""
    console = open_console()
    console.print(f"[bold]{topic.name}[/bold]  id {topic.id}, offsets span {topic.span:,} records")
    titles = ("partition", "leader", "replicas", "in sync", "start", "end")
    table = make_table(titles, right=titles)
    for one in topic.partitions:
        table.add_row(
            str(one.partition),
            str(one.leader) if one.has_leader else "[red]none[/red]",
            ",".join(map(str, one.replicas)),
            ",".join(map(str, one.isr)),
            number_text(one.start, "?"),
            number_text(one.end, "?"),
        )
    console.print(table)
    for config in _configs(topic, every=every_config):
        console.print(f"  {config.name} = {config.value}", markup=False, soft_wrap=True)


def _configs(topic: TopicOverview, *, every: bool) -> tuple[ConfigOverview, ...]:
    return topic.configs if every else topic.own_configs
