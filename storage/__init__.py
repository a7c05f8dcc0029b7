"""Tiered storage: files cut into provable segments, kept by the providers of a deal until its last block.

tree      FileTree, Segment, verify_segment: bytes <-> root
terms     DealTerms, DealSource: what the chain says, as this package sees it
store     StorageStore: segments on disk, counted by deal
service   StorageService: who may write, what is served, receipts, expiry
routes    storage_routes: the service over HTTP
client    StorageClient: upload, download, read
"""
