"""Light client: headers that a node serves, checked by the signatures of more than 2/3 of the validators.

`blocks` holds the data, `hashes` and `votes` CometBFT's canonical encodings of it, `decoding` reads it out of a node's
JSON, `verify` has the rules, `trust` where trust starts, `store` what was verified before, `client` goes from there to
the height that is asked for. From CometBFT's specification, spec/core/data_structures.md and spec/light-client.
"""
