"""Chains signed with keys of our own: light blocks, their JSON, and a source of them."""

import base64
import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from node.errors import NodeUnreachable
from node.light.blocks import FOR_BLOCK, BlockId, Commit, CommitSignature, Header, LightBlock, Validator
from node.light.errors import BlockMissing
from node.light.hashes import NS_PER_S, header_hash, in_order, validator_address, validators_hash
from node.light.votes import sign_bytes

NO_BLOCK = BlockId(b"", 0, b"")
START_NS = 1_800_000_000 * NS_PER_S


class Signer:
    """A validator: its key and power."""

    def __init__(self, seed: str | bytes, power: int = 10) -> None:
        secret = hashlib.sha256(seed.encode()).digest() if isinstance(seed, str) else seed
        self.key = Ed25519PrivateKey.from_private_bytes(secret)
        self.validator = Validator(self.key.public_key().public_bytes_raw(), power)

    @property
    def address(self) -> bytes:
        return validator_address(self.validator.key)


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def set_of(signers: Sequence[Signer]) -> tuple[Validator, ...]:
    return in_order([signer.validator for signer in signers])


def make_header(
    chain_id: str,
    height: int,
    signers: Sequence[Signer],
    *,
    next_signers: Sequence[Signer] | None = None,
    below: BlockId = NO_BLOCK,
    app_hash: bytes = b"",
    time_ns: int | None = None,
) -> Header:
    return Header(
        block_version=11,
        app_version=1,
        chain_id=chain_id,
        height=height,
        time_ns=START_NS + height * NS_PER_S if time_ns is None else time_ns,
        last_block_id=below,
        last_commit_hash=digest("commit"),
        data_hash=digest("data"),
        validators_hash=validators_hash(set_of(signers)),
        next_validators_hash=validators_hash(set_of(signers if next_signers is None else next_signers)),
        consensus_hash=digest("params"),
        app_hash=app_hash,
        last_results_hash=digest("results"),
        evidence_hash=digest("evidence"),
        proposer_address=signers[0].address,
    )


def block_id(header: Header) -> BlockId:
    return BlockId(header_hash(header), 1, digest("parts"))


def sign(header: Header, signers: Sequence[Signer], absent: Sequence[Signer] = ()) -> LightBlock:
    """The block with the signatures of all but the absent."""
    by_key = {signer.validator.key: signer for signer in signers}
    empty, commit = CommitSignature(1, b"", 0, b""), Commit(header.height, 0, block_id(header), ())
    votes = []
    for validator in set_of(signers):
        signer = by_key[validator.key]
        vote = CommitSignature(FOR_BLOCK, signer.address, header.time_ns + 1, b"")
        signature = signer.key.sign(sign_bytes(header.chain_id, commit, vote))
        votes.append(empty if signer in absent else replace(vote, signature=signature))
    return LightBlock(header, replace(commit, signatures=tuple(votes)), set_of(signers))


def make_chain(chain_id: str, sets: Sequence[Sequence[Signer]], *, app_hash: bytes = b"") -> dict[int, LightBlock]:
    """Blocks 1 and up, each with its set; the last set is the one after the last block."""
    blocks: dict[int, LightBlock] = {}
    below = NO_BLOCK
    for height, (signers, after) in enumerate(itertools.pairwise(sets), start=1):
        header = make_header(chain_id, height, signers, next_signers=after, below=below, app_hash=app_hash)
        blocks[height], below = sign(header, signers), block_id(header)
    return blocks


class MemorySource:
    """A node's light blocks; counts what it is asked for."""

    def __init__(self, blocks: Mapping[int, LightBlock], url: str = "http://one") -> None:
        self.url = url
        self.blocks = dict(blocks)
        self.asked: list[int] = []
        self.down = False
        self.lie: Callable[[LightBlock], LightBlock] = lambda block: block

    async def light_block(self, height: int) -> LightBlock:
        self.asked.append(height)
        if self.down:
            raise NodeUnreachable(self.url, "down")
        if height not in self.blocks:
            raise BlockMissing(self.url, height, "not there")
        return self.lie(self.blocks[height])

    async def close(self) -> None: ...


def commit_json(block: LightBlock) -> dict[str, Any]:
    """As CometBFT answers `commit`."""
    header, commit = block.header, block.commit
    hashes = [name for name in Header.__struct_fields__ if name.endswith(("_hash", "_address"))]
    return {
        "signed_header": {
            "header": {
                **{name: getattr(header, name).hex().upper() for name in hashes},
                "version": {"block": str(header.block_version), "app": str(header.app_version)},
                "chain_id": header.chain_id,
                "height": str(header.height),
                "time": time_text(header.time_ns),
                "last_block_id": block_id_json(header.last_block_id),
            },
            "commit": {
                "height": str(commit.height),
                "round": commit.round,
                "block_id": block_id_json(commit.block_id),
                "signatures": [
                    {
                        "block_id_flag": vote.flag,
                        "validator_address": vote.address.hex().upper(),
                        "timestamp": time_text(vote.time_ns),
                        "signature": base64.b64encode(vote.signature).decode() or None,
                    }
                    for vote in commit.signatures
                ],
            },
        },
        "canonical": True,
    }


def validators_json(block: LightBlock) -> dict[str, Any]:
    """As CometBFT answers `validators`."""
    entries = [
        {
            "address": validator_address(validator.key).hex().upper(),
            "pub_key": {"type": "tendermint/PubKeyEd25519", "value": base64.b64encode(validator.key).decode()},
            "voting_power": str(validator.power),
            "proposer_priority": "0",
        }
        for validator in block.validators
    ]
    count = str(len(entries))
    return {"block_height": str(block.height), "validators": entries, "count": count, "total": count}


def block_id_json(block: BlockId) -> dict[str, Any]:
    parts = {"total": block.parts_total, "hash": block.parts_hash.hex().upper()}
    return {"hash": block.hash.hex().upper(), "parts": parts}


def time_text(time_ns: int) -> str:
    if not time_ns:
        return "0001-01-01T00:00:00Z"
    seconds, nanos = divmod(time_ns, NS_PER_S)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanos:09d}Z"
