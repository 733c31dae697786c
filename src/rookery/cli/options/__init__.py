"""Arguments of commands: how they are declared, their values, and those that several share.

A field of a class of arguments is declared with `option`, `switch`, `positional`, `repeated` or
`part` (fields.py). Classes that several commands include are `ClusterOptions`, `LogAddress`,
`SparkOptions` and `JobArguments`.
"""
