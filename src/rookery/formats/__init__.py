"""Files and objects as bytes: their names and what is in them."""
