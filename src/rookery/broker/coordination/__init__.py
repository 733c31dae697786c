"""Coordination of keys that one broker at a time can own: claims, events, persists, time.

A `Coordinator` drives one machine per key. To coordinate another kind of key, implement
`KeySubject`, and a machine that takes events such as `MachineRequest` and returns effects such as
`Reply` and `Persist` (machine.py).
"""
