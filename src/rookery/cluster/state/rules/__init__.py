"""The effects of events: one file of rules per subject; `State.apply` calls them.

`State` finds the rules of an event by its class. Limits that callers check before they propose are
constants here, such as `MAX_SOURCE_OFFSETS`.
"""
