"""A load on CometBFT's own RPC, prepared beforehand, and what came of it by the contents of blocks.

The generator shares the processors with the nodes that it measures, so nothing is signed or encoded while it runs.
"""
