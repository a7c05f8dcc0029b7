"""The ABCI 2.0 socket that CometBFT connects to: frames, protobuf messages, the server. Knows no rule of the chain."""
