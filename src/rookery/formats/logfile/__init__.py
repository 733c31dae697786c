"""Reads and writes the file formats of a Kafka broker's data directory, without I/O."""
