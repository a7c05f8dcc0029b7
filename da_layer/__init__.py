"""Data availability: blobs as erasure-coded rows on many nodes, so that any third of them (by stake) restores a blob.

`coding` makes, checks and decodes rows; `store` keeps a node's rows; `server` and `client` speak HTTP under /da/v1.
The reasons stand in docs/da.md.
"""
