"""Rebuilds a lost cluster log from the objects of a store (`rookery recover`)."""
