"""The broker: implements the Kafka APIs on top of the cluster state and the log.

`serve.py` starts a `Broker` (broker.py), which owns all parts and hands them to handlers as
`Services`. A handler in `apis` is a function under `@handles` (call.py). `BrokerSettings` has the
settings.
"""
