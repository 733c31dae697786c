"""Structures that travel as plain bytes inside other messages."""
