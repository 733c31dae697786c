"""The parts of the cluster log that lives in an object store (`backends/store.py`)."""
