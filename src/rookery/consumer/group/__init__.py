"""Members of consumer groups in both protocols, their partitions and commits."""
