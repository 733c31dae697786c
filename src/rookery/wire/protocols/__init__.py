"""Structures that travel as plain bytes inside other messages.

`read_subscription`, `read_assignment` and their opposites are the consumer protocol of groups;
`versionedbytes` reads the version in front of such bytes.
"""
