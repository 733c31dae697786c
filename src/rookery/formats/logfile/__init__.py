"""The files of a Kafka broker's data directory, as bytes: each read and written, without I/O."""
