"""The parts of `bench/security.py`."""
