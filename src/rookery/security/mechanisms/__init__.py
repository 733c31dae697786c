"""SASL mechanisms, one file each, bytes in and bytes out."""
