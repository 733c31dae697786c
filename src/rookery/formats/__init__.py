"""The names and the byte formats of files and objects.

keys.py has the names of all objects and files. Each other module is one format: `SegmentWriter` and
`SegmentLayout` for segments, `Manifest` for shared objects, journal.py for journals. No I/O.
"""
