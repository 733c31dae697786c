"""The commands: one module per command, or a folder for a command with subcommands."""
