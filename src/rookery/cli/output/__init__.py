"""Output of commands: tables, figures, lines of records, bars; imported only when they run."""
