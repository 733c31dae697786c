"""The metadata of a KRaft cluster on disk: its log, its snapshots, and the resulting image.

`read_batch` and `pack_batch` convert records; a `MetadataImage` follows from applying them.
"""
