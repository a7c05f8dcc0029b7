"""One node: configuration, keys, processes, JSON-RPC, and the typed client that every other part uses."""
