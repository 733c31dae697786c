"""One file for each kind of group, with its row `KIND`; the folder is scanned."""
