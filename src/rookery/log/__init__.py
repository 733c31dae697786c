"""The log itself: batches made durable, and read back."""
