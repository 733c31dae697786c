"""What `rookery demo` runs: a killed broker, a killed pipeline, and the count of what is left."""
