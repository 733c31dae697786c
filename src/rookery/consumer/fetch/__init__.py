"""Sources of rows and the fetcher that keeps the buffers of all partitions filled."""
