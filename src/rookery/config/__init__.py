"""Settings from files, environment and flags, into the settings classes of the parts.

A part's settings class is a frozen dataclass of plain values, each with a docstring. From it come:

- its keys in a TOML file: `http-listen` (or `http_listen`) in the table `[broker]`,
- its variables: `ROOKERY_BROKER_HTTP_LISTEN`,
- its flags: `--http-listen`, with the docstring as help.

Flags win over the environment, that over files, those over defaults: see
`docs/guide/configuration.md`.
"""
