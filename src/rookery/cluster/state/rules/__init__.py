"""The effects of events: one file of rules per subject; `State.apply` calls them."""
