"""The declaration of a pipeline: its classes, loading it from TOML, its checks and its export."""
