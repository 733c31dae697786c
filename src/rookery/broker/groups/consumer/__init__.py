"""The consumer group protocol (KIP-848): its state machine, assignors and persisted form.

The surface is `ConsumerGroupMachine`: events in, effects out. Only `migration.py` of the package
above sees the `ConsumerGroup` inside it.
"""
