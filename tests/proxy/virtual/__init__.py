"""Virtual partitions of the proxy."""
