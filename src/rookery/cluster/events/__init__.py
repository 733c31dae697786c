"""The events of a cluster: one class per event, in one file per subject.

An event is a `Message` with a key, so it has a versioned, strictly checked binary encoding.
`cluster.state` decides the effect of an event.
"""
