"""The events of a cluster: one class per event, in one file per subject.

An event is a `Message` with a key, so it has a versioned, strictly checked binary encoding.
`cluster.state` decides the effect of an event.

Callers construct an event, such as `TopicCreated`, and pass it to `Replica.propose`. A key is never
used for a second event.
"""
