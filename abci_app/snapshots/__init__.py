"""Snapshots of the state for nodes that join: their form, how they are taken and kept, how one is restored."""
