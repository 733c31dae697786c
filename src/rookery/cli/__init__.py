"""The `rookery` command: one file a subcommand."""
