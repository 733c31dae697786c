"""A broker's disk into a cluster whose log lives in object storage, with every offset kept."""
