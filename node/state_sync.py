"""Sets a node without blocks up for state sync: which nodes' headers are checked, and which block is trusted.

State sync fetches a recent state from peers, in chunks that are verified against the app hash of a block header; the
header is verified by CometBFT's light client from a block that is trusted. Where that block is not given, it is what
all sources say now: then they are trusted together, once.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from node.chain import Engine
from node.checks import check_genesis_file, single_instance
from node.config import NodeConfig, load_config, save_config
from node.engine_files import ENGINE_PATH
from node.errors import NodeError, SetupError
from node.reset import CHAIN_DATA, SIGNING_STATE

RECENT_BLOCKS: Final = 1000
"""How far below the newest block the trusted one is: at the usual interval the newest snapshot is above it."""
MAX_SOURCES: Final = 10
TIMEOUT_S: Final = 10.0


class Trust(msgspec.Struct, frozen=True):
    """The block that a state sync starts from."""

    height: int
    hash: bytes
    """32 bytes."""
    sources: tuple[str, ...]
    """Whose headers CometBFT fetches and compares."""
    agreed: bool
    """Whether the sources were asked for the hash, and said the same; else it was given."""


async def arm(
    home: Path,
    sources: Sequence[str],
    *,
    trust_height: int | None = None,
    trust_hash: str | None = None,
    session: aiohttp.ClientSession | None = None,
) -> Trust:
    """Have the node in `home`, which has no blocks, fetch a snapshot when it is started next.

    Args: sources, addresses of the services of other nodes; trust_height and trust_hash (64 hex digits) of a block
    that is known to be of the chain, both or neither.
    Raises: SetupError when the node runs or has blocks, when a source does not answer or is of another chain, or when
    they do not agree. The configuration is as before then.
    """
    config, chain_id = load_config(home), check_genesis_file(home)
    wanted = _addresses(sources)
    if (trust_height is None) != (trust_hash is None):
        raise SetupError("a trusted block is a height and a hash; give both, or neither")
    with single_instance(home):
        check_empty(home)
        if trust_height is not None and trust_hash is not None:
            _save(home, config, wanted, trust_height, trust_hash)
            return Trust(trust_height, bytes.fromhex(trust_hash), wanted, agreed=False)
        height, hash_ = await agreed_block(wanted, chain_id, session)
        _save(home, config, wanted, height, hash_.hex())
        return Trust(height, hash_, wanted, agreed=True)


def disarm(home: Path) -> None:
    """Have the node in `home` fetch all blocks again, should it have none.

    Raises: SetupError.
    """
    config = load_config(home)
    save_config(home, replace(config, state_sync=replace(config.state_sync, sources=())))


def check_empty(home: Path) -> None:
    """Raises: SetupError when there is a copy of the chain that a state sync would not touch."""
    engine = home / "cometbft/data"
    try:
        own = [path for path in engine.iterdir() if path.name != SIGNING_STATE]
    except OSError as error:
        raise SetupError(f"cannot read {engine}: {error.strerror}") from error
    own += [home / name for name in CHAIN_DATA if (home / name).exists()]
    if own:
        raise SetupError(
            f"{home} holds a copy of the chain already ({own[0].relative_to(home)}); a state sync is for nodes without "
            f"one. To start over: outerstep node reset --home {home}"
        )


async def agreed_block(
    sources: Sequence[str], chain_id: str, session: aiohttp.ClientSession | None = None
) -> tuple[int, bytes]:
    """Height and hash of a recent block of `chain_id` that every source has.

    Raises: SetupError naming the source that does not answer, is of another chain, or says something else.
    """
    engines = [Engine(f"{source}{ENGINE_PATH}", timeout_s=TIMEOUT_S, session=session) for source in sources]
    try:
        spans = await asyncio.gather(*(_span(engine, chain_id) for engine in engines))
        height = max(max(first for first, _ in spans), min(last for _, last in spans) - RECENT_BLOCKS)
        hashes = await asyncio.gather(*(_hash(engine, height) for engine in engines))
    finally:
        for engine in engines:
            await engine.close()
    if len(set(hashes)) > 1:
        said = ", ".join(f"{source}: {hash_.hex()}" for source, hash_ in zip(sources, hashes, strict=True))
        raise SetupError(
            f"the sources disagree about block {height}, so at least one lies or is of another chain ({said}); ask "
            "somebody you trust, and give --trust-height and --trust-hash"
        )
    return height, hashes[0]


async def _span(engine: Engine, chain_id: str) -> tuple[int, int]:
    """The lowest and the newest block of a source."""
    answer = await _ask(engine, "status")
    try:
        network, sync = answer["node_info"]["network"], answer["sync_info"]
        first, last = int(sync["earliest_block_height"]), int(sync["latest_block_height"])
    except (KeyError, TypeError, ValueError) as error:
        raise SetupError(f"{engine.url} does not answer as a node does: {error!r}") from error
    if network != chain_id:
        raise SetupError(f"{engine.url} is of chain {str(network)[:60]!r}; this node's genesis is of {chain_id!r}")
    if not 1 <= first <= last:
        raise SetupError(f"{engine.url} has no blocks yet; try again later, or name another node")
    return first, last


async def _hash(engine: Engine, height: int) -> bytes:
    answer = await _ask(engine, "commit", height=str(height))
    try:
        found, hash_ = (
            answer["signed_header"]["header"]["height"],
            answer["signed_header"]["commit"]["block_id"]["hash"],
        )
        if int(found) == height and len(hash_) == 64:
            return bytes.fromhex(hash_)
    except (KeyError, TypeError, ValueError) as error:
        raise SetupError(f"{engine.url} does not answer as a node does: {error!r}") from error
    raise SetupError(f"{engine.url} answered another block than {height}")


async def _ask(engine: Engine, method: str, **params: str) -> Any:
    try:
        return await engine.call(method, **params)
    except NodeError as error:
        raise SetupError(f"{engine.url}: {error}") from error


def _addresses(sources: Sequence[str]) -> tuple[str, ...]:
    """Without what people add to an address, each once."""
    found = dict.fromkeys((text if "://" in text else f"http://{text}").rstrip("/") for text in sources)
    if not 1 <= len(found) <= MAX_SOURCES:
        raise SetupError(f"{len(found)} nodes are named as sources; it should be 1 to {MAX_SOURCES}")
    return tuple(found)


def _save(home: Path, config: NodeConfig, sources: tuple[str, ...], height: int, hash_: str) -> None:
    chosen = replace(config.state_sync, sources=sources, trust_height=height, trust_hash=hash_.lower())
    save_config(home, replace(config, state_sync=chosen))
