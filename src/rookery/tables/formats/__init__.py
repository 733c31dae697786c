"""Table formats, one module per format, found by name; each provides `open(spec) -> Table`."""
