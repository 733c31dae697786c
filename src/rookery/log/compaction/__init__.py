"""Key compaction: of every key, the last record stays.

The caretaker runs a `Compactor`; `rookery job compact` runs a `PartitionCompaction` per task.
`dirt_of` says what is worth compacting.
"""
