"""One module per API, discovered by listing this folder; handlers do not import each other."""
