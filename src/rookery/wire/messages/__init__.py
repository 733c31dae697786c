"""One file an API: its two messages, its versions, and how it is refused."""
