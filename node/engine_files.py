"""CometBFT's files under DIR/cometbft: its keys (made once) and its config.toml (written anew at every start).

Every setting that differs from CometBFT's own default stands here with its reason.
"""

import base64
import json
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from abci_app.transactions import MAX_TX_BYTES, possession_digest
from node.config import ConfigError, NodeConfig, StateSyncConfig
from node.errors import SetupError
from node.files import write_atomically
from node.keys import write_private
from primitives.hashing import sha256

ENGINE_FOLDER: Final = "cometbft"
SOCKET_NAME: Final = "run/abci.sock"
"""Relative: both sides run in DIR, so a long path of DIR does not hit the 107 bytes of a Unix socket's address."""
MAX_SOCKET_PATH_BYTES: Final = 107
"""What the kernel allows for that address."""
ENGINE_PATH: Final = "/engine"
"""Where services pass on the calls that verifying headers takes (node.engine_proxy)."""
GENESIS_NAME: Final = "cometbft/config/genesis.json"


def make_engine_home(home: Path) -> None:
    """Keys of consensus and p2p, and the empty signing state; existing files are an error.

    Raises: SetupError.
    """
    engine = home / ENGINE_FOLDER
    try:
        for folder in (engine, engine / "config", engine / "data"):
            folder.mkdir(mode=0o700)
    except OSError as error:
        raise SetupError(f"cannot make {error.filename}: {error.strerror}") from error
    consensus, p2p = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    public = consensus.public_key().public_bytes_raw()
    key_file = {
        "address": consensus_address(public).hex().upper(),
        "pub_key": {"type": "tendermint/PubKeyEd25519", "value": base64.b64encode(public).decode()},
        "priv_key": _private_json(consensus),
    }
    write_private(engine / "config/priv_validator_key.json", _pretty(key_file))
    write_private(engine / "config/node_key.json", _pretty({"priv_key": _private_json(p2p)}))
    write_private(engine / "data/priv_validator_state.json", _pretty({"height": "0", "round": 0, "step": 0}))


def consensus_address(public_key: bytes) -> bytes:
    """CometBFT's name of a consensus key, 20 bytes."""
    return sha256(public_key)[:20]


def consensus_key(home: Path) -> bytes:
    """The node's Ed25519 public key, 32 bytes.

    Raises: SetupError.
    """
    return _private_key(home, "priv_validator_key.json").public_key().public_bytes_raw()


def node_id(home: Path) -> str:
    """CometBFT's p2p id, 40 hex digits.

    Raises: SetupError.
    """
    return consensus_address(_private_key(home, "node_key.json").public_key().public_bytes_raw()).hex()


def prove_possession(home: Path, chain_id: str, operator: bytes) -> bytes:
    """The signature by the node's consensus key that RegisterValidator carries, 64 bytes.

    Raises: SetupError.
    """
    return _private_key(home, "priv_validator_key.json").sign(possession_digest(chain_id, operator))


def write_engine_config(home: Path, config: NodeConfig) -> None:
    """DIR/cometbft/config/config.toml from the node's own configuration.

    Raises: ConfigError.
    """
    path = home / ENGINE_FOLDER / "config/config.toml"
    try:
        write_atomically(path, engine_config(home, config).encode())
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error


def engine_config(home: Path, config: NodeConfig) -> str:
    """The text of CometBFT's config.toml."""
    network, pace = config.network, config.consensus
    peers = ",".join(network.persistent_peers)
    return f"""# Written from {home / "config.toml"} at every start of the node; change that file instead.
proxy_app = "unix://{SOCKET_NAME}"
abci = "socket"
moniker = "{config.moniker}"
db_backend = "goleveldb"
log_level = "{"error" if config.log_level == "warning" else config.log_level}"
log_format = "plain"

[rpc]
laddr = "tcp://{network.engine_rpc}"
# Larger than the largest transaction in base64.
max_body_bytes = 1000000
max_subscription_clients = 20
experimental_close_on_slow_client = true

[p2p]
laddr = "tcp://{network.p2p}"
external_address = "{network.external_p2p}"
persistent_peers = "{peers}"
# Persistent peers are tried again at least this often; the default backs off to hours.
persistent_peers_max_dial_period = "5s"
# Private addresses and several nodes on one address are normal here.
addr_book_strict = false
allow_duplicate_ip = true
# Votes wait for this timer: the default of 100ms alone takes a block past half a second.
flush_throttle_timeout = "10ms"
# Blocks of a megabyte should not take a fifth of a second to pass on.
send_rate = 51200000
recv_rate = 51200000

[mempool]
# Balances and nonces change with every block, so what waits is checked again; the check looks at those only.
recheck = true
recheck_timeout = "500ms"
# Two full blocks of payments and what comes meanwhile: a node that is one block behind its peers holds that many, and
# what finds no room is dropped after it was taken.
size = 10000
cache_size = 50000
max_tx_bytes = {MAX_TX_BYTES}
max_txs_bytes = 67108864
# A transaction refused for its nonce today may be good tomorrow.
keep-invalid-txs-in-cache = false

[consensus]
timeout_propose = "{pace.timeout_propose_ms}ms"
timeout_propose_delta = "500ms"
timeout_prevote = "{pace.timeout_vote_ms}ms"
timeout_prevote_delta = "250ms"
timeout_precommit = "{pace.timeout_vote_ms}ms"
timeout_precommit_delta = "250ms"
# The fixed wait of each block; small instead of skip_timeout_commit, which one silent validator turns off.
timeout_commit = "{pace.timeout_commit_ms}ms"
skip_timeout_commit = false
# Idle nodes leave the processor to training: blocks come at once with transactions, else at this pace.
create_empty_blocks = false
create_empty_blocks_interval = "{pace.empty_block_interval_ms}ms"
# How soon news goes on to peers; the default of 100ms adds up over the steps of a round.
peer_gossip_sleep_duration = "10ms"

[statesync]
{_state_sync(config.state_sync)}

[tx_index]
# tx_get looks older transactions up here.
indexer = "kv"

[instrumentation]
prometheus = {"true" if network.engine_metrics else "false"}
prometheus_listen_addr = "{network.engine_metrics}"
"""


def _state_sync(chosen: StateSyncConfig) -> str:
    """CometBFT heeds the section only while it has no state of its own."""
    servers = [f"{source}{ENGINE_PATH}" for source in chosen.sources]
    return f"""enable = {"true" if servers else "false"}
# It wants two, for comparison; a single one is given twice.
rpc_servers = "{",".join(servers * 2 if len(servers) == 1 else servers)}"
trust_height = {chosen.trust_height}
trust_hash = "{chosen.trust_hash}"
trust_period = "{chosen.trust_period_h}h"
# The least that it takes: peers that are connected answer at once.
discovery_time = "5s"
chunk_request_timeout = "5s"
chunk_fetchers = "4\""""


def _private_key(home: Path, name: str) -> Ed25519PrivateKey:
    path = home / ENGINE_FOLDER / "config" / name
    try:
        secret = base64.b64decode(json.loads(path.read_bytes())["priv_key"]["value"], validate=True)
        return Ed25519PrivateKey.from_private_bytes(secret[:32])
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise SetupError(f"{path} is not a key file of CometBFT: {error}") from error


def _private_json(key: Ed25519PrivateKey) -> dict[str, str]:
    """CometBFT's form: seed and public key together, 64 bytes."""
    data = key.private_bytes_raw() + key.public_key().public_bytes_raw()
    return {"type": "tendermint/PrivKeyEd25519", "value": base64.b64encode(data).decode()}


def _pretty(document: object) -> bytes:
    return json.dumps(document, indent=2).encode() + b"\n"
