"""What follows from the events: pure, the same on every broker.

No clock, no chance, no `hash()`, no order of a set, no floating point in here: two replicas that
apply the same entries hold the same state, and a digest of the outcomes finds those that do not.
"""
