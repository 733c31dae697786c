"""Added to `broker/groups/kinds`."""
