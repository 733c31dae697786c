"""Changes of records on their way: produce requests, fetch responses, and the names of topics."""
