"""Pages of documentation that are generated from the routes."""
