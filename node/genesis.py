"""genesis.json: one document for all nodes of a network, made once and copied to each."""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from abci_app.params import (
    STAKE_PER_POWER,
    Genesis,
    GenesisAccount,
    GenesisError,
    GenesisValidator,
    Params,
    parse_genesis,
)
from node.engine_files import GENESIS_NAME, consensus_address
from node.errors import SetupError
from node.files import write_atomically
from node.init import NodeIdentity
from primitives.amounts import MICRO_PER_TOKEN
from primitives.keys import format_address

MAX_GENESIS_BYTES: Final = 32 * 1024 * 1024
"""CometBFT passes app_state to the application in one message; this many bytes are about 350,000 accounts."""
MAX_BLOCK_BYTES: Final = 2 * 1024 * 1024
DEFAULT_BOND: Final = 100 * MICRO_PER_TOKEN


def make_genesis(
    nodes: Sequence[NodeIdentity],
    accounts: Mapping[bytes, int],
    params: Params | None = None,
    *,
    chain_id: str,
    bond: int = DEFAULT_BOND,
    time: datetime | None = None,
) -> bytes:
    """The genesis in which each of `nodes` is a validator with `bond` (10^-6 token) at stake.

    Args: accounts, address to balance. Operators need some balance there to pay fees.
    Raises: SetupError naming the field that is wrong, or a document above 32 MiB.
    """
    genesis = Genesis(
        accounts=tuple(GenesisAccount(format_address(a), balance) for a, balance in sorted(accounts.items())),
        validators=tuple(
            GenesisValidator(
                operator=format_address(node.operator),
                consensus_key=node.consensus_key.hex(),
                bond=bond,
                service_key=node.service_key.hex(),
                url=node.url,
            )
            for node in sorted(nodes, key=lambda node: node.operator)
        ),
        params=params or Params(),
    )
    document = {
        "genesis_time": (time or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "chain_id": chain_id,
        "initial_height": "1",
        "consensus_params": _consensus_params(genesis.params),
        "validators": [_engine_validator(validator) for validator in genesis.validators],
        "app_hash": "",
        "app_state": msgspec.to_builtins(genesis),
    }
    encoded = json.dumps(document, indent=1).encode()
    check_genesis(encoded)
    return encoded


def check_genesis(document: bytes) -> str:
    """Check a genesis.json of ours and return its chain id.

    Raises: SetupError naming what is wrong.
    """
    if len(document) > MAX_GENESIS_BYTES:
        raise SetupError(f"genesis.json has {len(document)} bytes; at most {MAX_GENESIS_BYTES} are allowed")
    try:
        parsed = json.loads(document)
        chain_id, app_state, engine = parsed["chain_id"], parsed["app_state"], parsed["validators"]
        genesis = parse_genesis(json.dumps(app_state).encode())
        listed = {base64.b64decode(v["pub_key"]["value"]).hex(): int(v["power"]) for v in engine}
        evidence_blocks = int(parsed["consensus_params"]["evidence"]["max_age_num_blocks"])
    except GenesisError as error:
        raise SetupError(f"genesis.json: {error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SetupError(f"genesis.json is not a genesis of this program: {error!r}") from error
    if not isinstance(chain_id, str) or not re.fullmatch(r"[A-Za-z0-9._-]{1,50}", chain_id):
        raise SetupError(f"chain id {chain_id!r} should be 1 to 50 letters, digits, - _ and .")
    if listed != {v.consensus_key: v.bond // STAKE_PER_POWER for v in genesis.validators}:
        raise SetupError("genesis.json: CometBFT's validators and those of app_state differ in keys or powers")
    if evidence_blocks < genesis.params.unbonding_blocks:
        raise SetupError(
            f"genesis.json: evidence.max_age_num_blocks is {evidence_blocks}; it should be at least unbonding_blocks "
            f"({genesis.params.unbonding_blocks}), as long as stake answers for a double signature"
        )
    return chain_id


def install_genesis(home: Path, document: bytes) -> None:
    """Put the genesis into a node's home.

    Raises: SetupError when it is wrong, or when the node holds another one already.
    """
    check_genesis(document)
    path = home / GENESIS_NAME
    try:
        if path.exists():
            if path.read_bytes() == document:
                return
            raise SetupError(f"{path} holds another genesis; a node belongs to one network for good")
        write_atomically(path, document)
    except OSError as error:
        raise SetupError(f"cannot write {path}: {error.strerror}") from error


def _consensus_params(params: Params) -> dict[str, Any]:
    """Evidence counts for as long as stake can be slashed. CometBFT drops what is too old in blocks and time both, so
    the blocks always count; the time, that of the fastest blocks, is what light clients take as trusting period."""
    return {
        "block": {"max_bytes": str(MAX_BLOCK_BYTES), "max_gas": str(params.max_block_work)},
        "evidence": {
            "max_age_num_blocks": str(params.unbonding_blocks),
            "max_age_duration": str(params.unbonding_blocks * 100_000_000),
            "max_bytes": "65536",
        },
        "validator": {"pub_key_types": ["ed25519"]},
        "version": {"app": "0"},
        "abci": {"vote_extensions_enable_height": "0"},
    }


def _engine_validator(validator: GenesisValidator) -> dict[str, Any]:
    key = bytes.fromhex(validator.consensus_key)
    return {
        "address": consensus_address(key).hex().upper(),
        "pub_key": {"type": "tendermint/PubKeyEd25519", "value": base64.b64encode(key).decode()},
        "power": str(validator.bond // STAKE_PER_POWER),
        "name": "",
    }
