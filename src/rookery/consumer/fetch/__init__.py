"""Sources of rows and the fetcher that keeps the buffers of all partitions filled.

A `RowSource` fetches rows: `KafkaSource` from brokers, `ObjectSource` from the log itself. The
`Feed` puts them into `Shelves`, from which `order` takes them.
"""
