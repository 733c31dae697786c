"""What commands print: tables, figures, lines of records, bars; imported only when they run."""
