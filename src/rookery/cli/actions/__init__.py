"""What the commands do; imported when one runs, since this is where the weight is."""
