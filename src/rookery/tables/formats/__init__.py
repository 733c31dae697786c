"""One module a table format, found by its name: each offers `open(spec) -> Table`."""
