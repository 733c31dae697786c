"""What can happen to a cluster: one class an event, in files by subject.

An event is a `Message` with a key, so it has a versioned, strictly checked byte form. What follows
from an event is decided in `cluster.state`, never here.
"""
