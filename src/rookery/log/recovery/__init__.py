"""Rebuilds the state of a cluster whose log was lost, from what lies in the store."""
