"""Where objects can live; a module's name is the scheme of its URLs."""
