"""Where a cluster log can live; a module's name is the scheme of its URLs."""
