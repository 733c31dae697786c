"""The parts of the cluster log in an object store (`backends/store.py`)."""
