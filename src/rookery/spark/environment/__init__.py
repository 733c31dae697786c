"""The Python environment of a Spark cluster: packed, cached, shipped and unpacked."""
