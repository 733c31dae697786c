"""Members of consumer groups in both protocols, their partitions and commits.

`ClassicGroupMember` and `ConsumerMember` are the two protocols; `Commits` stores the positions.
"""
