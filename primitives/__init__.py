"""What every part of outerstep agrees on byte by byte: hashes, Merkle trees, canonical encoding, keys, signed forms."""
