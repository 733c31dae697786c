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
                "partition": partition.partition,
                "leader": partition.leader,
                "replicas": partition.replicas,
                "isr": partition.isr,
                "start": partition.start,
                "end": partition.end,
            }
            for partition in topic.partitions
        ],
        "configs": {config.name: config.value for config in _configs(topic, every=every_config)},
    }


def print_topic(topic: TopicOverview, *, every_config: bool) -> None:
    """Print a topic as readable text."""
    console = open_console()
    console.print(f"[bold]{topic.name}[/bold]  id {topic.id}, offsets span {topic.span:,} records")
    titles = ("partition", "leader", "replicas", "in sync", "start", "end")
    table = make_table(titles, right=titles)
    for partition in topic.partitions:
        table.add_row(
            str(partition.partition),
            str(partition.leader) if partition.has_leader else "[red]none[/red]",
            ",".join(map(str, partition.replicas)),
            ",".join(map(str, partition.isr)),
            number_text(partition.start, "?"),
            number_text(partition.end, "?"),
        )
    console.print(table)
    for config in _configs(topic, every=every_config):
        console.print(f"  {config.name} = {config.value}", markup=False, soft_wrap=True)


def _configs(topic: TopicOverview, *, every: bool) -> tuple[ConfigOverview, ...]:
    return topic.configs if every else topic.own_configs
