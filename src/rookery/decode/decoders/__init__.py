"""One decoder per module; the module's name is the decoder's name."""
