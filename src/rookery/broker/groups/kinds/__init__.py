"""One module per kind of group, each with its row `KIND`; the folder is scanned."""
