"""One file an API: its two messages, its versions, and how it is refused.

A module has an `Api` in upper case, such as `PRODUCE`; `wire/catalog.py` scans the folder. All
modules are public.
"""
