"""One file an API, found by a look into this folder; handlers do not know each other."""
