"""Python twins of the compiled modules: fallback without a compiler, and oracle in tests.

The modules that load the compiled code import the twin if there is none; tests compare the two.
"""
