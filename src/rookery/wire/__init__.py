"""Kafka's protocol as bytes and messages: no socket, file, clock or thread.

A message is a class that derives from `Message` (message.py); an `Api` joins a request and its
response. codec.py converts them, and is public. `FrameSplitter` cuts a stream into frames. walk.py,
partition.py and endpoints.py see or change a message without knowing it.
"""
