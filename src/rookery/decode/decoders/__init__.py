"""One decoder a module; the module's name is the decoder's."""
