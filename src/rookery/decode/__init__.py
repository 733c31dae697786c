"""Decodes bytes to typed Arrow columns: JSON, Avro, Protobuf and others, with errors per row."""
