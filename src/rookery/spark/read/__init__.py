"""Reading topics in Spark: options, planning on the driver, batch and stream readers."""
