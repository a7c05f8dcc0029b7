"""Thin public face of outerstep: the command line and the version."""
