"""Breaks a running local network in every way we know, and then counts what was lost (`python -m localnet.chaos`)."""
