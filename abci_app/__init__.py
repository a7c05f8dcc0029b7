"""The chain's application: what a transaction may do, and the ABCI 2.0 face that CometBFT drives.

Integers only; time and randomness from the block; sorted iteration. No sockets outside `abci_app.server`.
"""
