"""Output of commands: tables, figures, lines of records, bars; imported only when they run.

Most commands need `open_console` and `make_table` (tables.py) or a `LiveMeter` (figures.py); the
other modules render one subject each.
"""
