"""Parts of `bench/consumer.py`."""
