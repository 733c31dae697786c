"""The records of Kafka's state topics: the state of group, transaction and share coordinators.

`CONSUMER_OFFSETS` and `TRANSACTION_STATE` (catalog.py) read and write the records of their topics.
"""
