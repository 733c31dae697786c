"""The parts of `bench/spark.py`."""
