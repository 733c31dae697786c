"""Settings of topics and brokers: keys, values in force, and changes to them."""
