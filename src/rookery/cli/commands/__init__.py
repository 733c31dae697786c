"""The commands: one module per command, or a folder for a command with subcommands.

A module has a `Command`, a folder a `CommandFamily`, each named `COMMAND`.
"""
