"""The parts of `bench/proxy.py`."""
