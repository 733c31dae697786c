"""The effects of events: pure functions, identical on every broker.

No clock, randomness, `hash()`, set order or floating point is used here. Two replicas that apply
the same entries hold the same state, and a digest of the outcomes detects those that do not.

`State.apply` applies an entry and returns an `EntryOutcome` with an `Outcome` per event. Readers
see `Topics`, each `Topic` with its `Partition`s, and the `Row`s of those.
"""
