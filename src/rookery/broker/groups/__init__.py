"""Consumer groups: one pure state machine per protocol, and the coordinator that drives them.

`GroupCoordinator` is what the broker opens. Handlers pass requests to a group with `hand_over` and
look at it with `find_machine` (requests.py). A protocol is a `GroupKind` in `kinds`.
"""
