"""The metadata of a KRaft cluster on disk: its log, its snapshots, and the resulting image."""
