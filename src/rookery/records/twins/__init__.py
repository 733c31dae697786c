"""Python twins of the compiled modules: fallback without a compiler, and oracle in tests."""
