"""The steps of `rookery demo`: kill a broker, kill a pipeline, and count the records afterwards."""
