"""Added to `broker/apis`."""
