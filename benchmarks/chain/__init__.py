"""The chain under load beside CometBFT's own example application (`make bench-chain`)."""
