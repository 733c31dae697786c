"""The classic group protocol: its state machine, its members and its persisted form.

The surface is `ClassicGroupMachine`: events in, effects out. Only `migration.py` of the package
above sees the `ClassicGroup` inside it.
"""
