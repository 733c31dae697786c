"""The commands: a module each, or a folder for a command that has commands of its own."""
