"""One decoder per module; the module's name is the decoder's name.

A module has `open(settings)`, which returns a `Decoder` of `decode/port.py`; `open_decoder` imports
it by name.
"""
