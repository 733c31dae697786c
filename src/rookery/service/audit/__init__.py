"""The audit file: logins, denials and administrative changes, one line of JSON each."""
