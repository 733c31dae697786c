"""The backends of the cluster log; a module's name is the scheme of its URLs."""
