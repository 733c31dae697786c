"""Backends of the object store; a module's name is the scheme of its URLs."""
