"""Plugs that a test adds to the broker: a kind of group and its API, one file each."""
