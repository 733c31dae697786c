"""Arguments of commands: how they are declared, their values, and those that several share."""
