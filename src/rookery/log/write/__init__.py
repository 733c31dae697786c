"""The write path: batches are gathered, made durable by a flush target, and committed."""
