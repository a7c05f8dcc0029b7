"""Several nodes on one machine: start, watch, break and stop a local network, and the demo that runs on it."""
