"""The audit file: logins, denials and administrative changes, one line of JSON each.

`AuditLog` writes the file without blocking its callers. `changes_of` lists what an event changes.
"""
