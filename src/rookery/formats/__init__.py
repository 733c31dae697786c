"""The names and the byte formats of files and objects."""
