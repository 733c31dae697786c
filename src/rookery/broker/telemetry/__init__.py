"""Client metrics (KIP-714): subscriptions, and the values that clients push.

`Telemetry` keeps what clients push. `wanted_of` returns what a client must push.
"""
