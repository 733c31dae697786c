"""Virtual partitions: topics with more partitions than the upstream has.

A topic of P physical partitions is shown with V partitions. Each batch carries a tag of its slot in
the log itself, so instances share no state: any of them reads the same numbers from the log.

    NodeLink ──► VirtualLink ──► VirtualProduce, VirtualFetch, OffsetLookup, GroupCommits
                     │                              │
                 TopicBook                     PhysicalLog ──► SlotIndex

`rules`, `apirules`, `tags`, `slotindex`, `shadowgroups` and `partitionview` are pure: they decide,
and do no I/O. So is the core of `transactions`, the streams of transactional producers.
`virtuallink.VirtualLink` serves one client; the command reads YAML with
`remapperfile.read_remapper_file`. The guide is docs/guide/virtual-partitions.md, the design is in
docs/designs/0017.
"""
