"""Client metrics (KIP-714): subscriptions, and the values that clients push."""
