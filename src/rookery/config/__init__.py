"""Loads settings from files, environment and flags into settings classes.

A settings class is a frozen dataclass of plain values, each with a docstring. It defines:

- its keys in a TOML file: `http-listen` (or `http_listen`) in the table `[broker]`,
- its variables: `ROOKERY_BROKER_HTTP_LISTEN`,
- its flags: `--http-listen`, with the docstring as help.

Flags override the environment, which overrides files, which override defaults: see
`docs/guide/configuration.md`.

`load` returns `LoadedSettings`: the settings, and the source of each value. `settings_of` lists the
settings of a class. `sections` finds the tables of the file.
"""
