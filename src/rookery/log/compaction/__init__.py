"""Key compaction: of every key, the last record stays."""
