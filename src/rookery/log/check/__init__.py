"""Checks of a whole log against its cluster log (`rookery fsck`), and of journals after a crash."""
