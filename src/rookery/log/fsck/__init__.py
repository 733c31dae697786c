"""Checks everything that the cluster log names against what is there, and the other way round."""
