"""Bytes to typed Arrow columns: JSON, Avro, Protobuf and others, with a reason for each bad row."""
