"""The one configuration file of a node, DIR/config.toml: read, checked field by field, written with comments.

What all nodes must agree on stands in genesis (abci_app.params), never here.
"""

import json
import re
import tomllib
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, cast, get_args, get_origin, get_type_hints

from node.errors import SetupError
from node.files import write_atomically

CONFIG_NAME: Final = "config.toml"
DEFAULT_BASE_PORT: Final = 26600
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOOPBACK: Final = "127.0.0.1"
URL_PATTERN: Final = r"https?://[^\s/,\"\\]+"
"""Of services."""
T = TypeVar("T")


def _setting(default: T, about: str) -> T:
    """A field with the text that stands above it in the file."""
    return field(default=default, metadata={"about": about})


class ConfigError(SetupError):
    """A configuration that cannot be used; the message names file, field, value, and what it should be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig:
    """Where the node listens, and where others find it."""

    p2p: str = _setting(
        f"0.0.0.0:{DEFAULT_BASE_PORT}", "Consensus and gossip between nodes (host:port). Open it to the other nodes."
    )
    engine_rpc: str = _setting(
        f"{LOOPBACK}:{DEFAULT_BASE_PORT + 1}", "CometBFT's own RPC. Keep it on loopback: only the node itself needs it."
    )
    services: str = _setting(
        f"0.0.0.0:{DEFAULT_BASE_PORT + 2}", "JSON-RPC, DA rows, storage. Open it to nodes, workers and clients."
    )
    engine_metrics: str = _setting(
        f"{LOOPBACK}:{DEFAULT_BASE_PORT + 3}", 'CometBFT\'s Prometheus metrics; "" turns them off.'
    )
    public_url: str = _setting(
        f"http://{LOOPBACK}:{DEFAULT_BASE_PORT + 2}", "How others reach `services`; registered on chain."
    )
    external_p2p: str = _setting("", 'How others reach `p2p` (host:port), where that differs; "" otherwise.')
    persistent_peers: tuple[str, ...] = _setting((), "Nodes to stay connected with, each node-id@host:port.")

    def __post_init__(self) -> None:
        for name in ("p2p", "engine_rpc", "services"):
            split_address(getattr(self, name), name=f"network.{name}")
        for name in ("engine_metrics", "external_p2p"):
            if getattr(self, name):
                split_address(getattr(self, name), name=f"network.{name}")
        listening = [self.p2p, self.engine_rpc, self.services, *([self.engine_metrics] if self.engine_metrics else [])]
        ports = [split_address(address, name="")[1] for address in listening]
        if len(set(ports)) != len(ports):
            raise ConfigError(f"network: the ports {ports} should all differ")
        if not re.fullmatch(r"https?://[^\s/]+", self.public_url) or len(self.public_url) > 128:
            raise ConfigError(f"network.public_url is {self.public_url!r}; it should be like http://host:port")
        for peer in self.persistent_peers:
            if not re.fullmatch(r"[0-9a-f]{40}@[^\s@,]+:\d{1,5}", peer):
                raise ConfigError(
                    f"network.persistent_peers holds {peer!r}; it should be like <40 hex digits>@host:port"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsensusConfig:
    """How CometBFT paces blocks on this node; nodes of one network should have the same numbers."""

    timeout_commit_ms: int = _setting(100, "Wait after each block for late votes; the least time between blocks.")
    timeout_propose_ms: int = _setting(
        2000, "Wait for a block of the proposer before voting nil; longer on slow links."
    )
    timeout_vote_ms: int = _setting(500, "Wait for votes when they are split.")
    empty_block_interval_ms: int = _setting(1000, "A block comes at least this often; a transaction makes one at once.")

    def __post_init__(self) -> None:
        _check_range(self, "consensus", low=1, high=600_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskConfig:
    """How much this node keeps for others."""

    da_budget_mib: int = _setting(10_240, "Rows of blobs until they expire.")
    storage_budget_mib: int = _setting(102_400, "Files of storage deals.")

    def __post_init__(self) -> None:
        _check_range(self, "disk", low=1, high=1 << 40)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """What callers may ask of the services."""

    body_kib: int = _setting(1024, "Largest request body.")
    batch: int = _setting(50, "Most calls in one batch.")
    calls_per_s: int = _setting(200, "Per address, on average; loopback is not limited.")
    calls_burst: int = _setting(1000, "Per address, at once.")
    websockets: int = _setting(200, "Open WebSockets in all.")
    connections: int = _setting(1000, "Open connections to the services' port in all.")
    connections_per_address: int = _setting(100, "Of these from one address (IPv6: /64); loopback is not limited.")

    def __post_init__(self) -> None:
        _check_range(self, "limits", low=1, high=1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotsConfig:
    """Snapshots of the chain's state, from which nodes join without executing every block."""

    interval_blocks: int = _setting(1000, "One is taken every so many blocks, beside the chain; 0: none.")
    keep: int = _setting(2, "How many are kept for others; each takes about as much disk as the state.")

    def __post_init__(self) -> None:
        _check_range(self, "snapshots", low=0, high=1_000_000_000)
        if not self.keep:
            raise ConfigError("snapshots.keep is 0; it should be 1 or more (interval_blocks = 0 turns them off)")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSyncConfig:
    """How a node without blocks fetches a recent state; written by `outerstep node state-sync`, unused afterwards."""

    sources: tuple[str, ...] = _setting((), "Services of nodes whose headers are checked; empty: fetch all blocks.")
    trust_height: int = _setting(0, "A block that is trusted, by its height and hash (64 hex digits).")
    trust_hash: str = _setting("", "See trust_height.")
    trust_period_h: int = _setting(24, "Hours after its block in which that trust may be used.")

    def __post_init__(self) -> None:
        for source in self.sources:
            if not re.fullmatch(URL_PATTERN, source):
                raise ConfigError(f"state_sync.sources holds {source!r}; it should be like http://host:port")
        if not 1 <= self.trust_period_h <= 100_000:
            raise ConfigError(f"state_sync.trust_period_h is {self.trust_period_h}; it should be 1 to 100000")
        if not 0 <= self.trust_height < 2**63 or (self.sources and not self.trust_height):
            raise ConfigError(f"state_sync.trust_height is {self.trust_height}; it should be the height of a block")
        if (self.sources or self.trust_hash) and not re.fullmatch(r"[0-9a-fA-F]{64}", self.trust_hash):
            raise ConfigError(f"state_sync.trust_hash is {self.trust_hash!r}; it should be 64 hex digits")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """Everything that one node needs to know about itself."""

    moniker: str = _setting("node", "Name for people: 1 to 40 letters, digits, - and _.")
    log_level: str = _setting("info", "debug, info, warning or error.")
    network: NetworkConfig = field(default_factory=NetworkConfig)
    consensus: ConsensusConfig = field(default_factory=ConsensusConfig)
    disk: DiskConfig = field(default_factory=DiskConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    snapshots: SnapshotsConfig = field(default_factory=SnapshotsConfig)
    state_sync: StateSyncConfig = field(default_factory=StateSyncConfig)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", self.moniker):
            raise ConfigError(f"moniker is {self.moniker!r}; it should be 1 to 40 letters, digits, - and _")
        if self.log_level not in LOG_LEVELS:
            raise ConfigError(f"log_level is {self.log_level!r}; it should be one of {', '.join(LOG_LEVELS)}")


def ports_from(base_port: int, *, host: str = LOOPBACK, bind: str | None = None) -> NetworkConfig:
    """The usual ports from `base_port` on, reached by others at `host` and bound to `bind` (default: `host`)."""
    if not 1024 <= base_port <= 65532:
        raise ConfigError(f"base port is {base_port}; it should be 1024 to 65532")
    bind = bind or host
    return NetworkConfig(
        p2p=f"{bind}:{base_port}",
        engine_rpc=f"{LOOPBACK}:{base_port + 1}",
        services=f"{bind}:{base_port + 2}",
        engine_metrics=f"{LOOPBACK}:{base_port + 3}",
        public_url=f"http://{host}:{base_port + 2}",
        external_p2p="" if bind == host else f"{host}:{base_port}",
    )


def split_address(address: str, *, name: str) -> tuple[str, int]:
    """Host and port of ``host:port`` (IPv6 hosts in brackets).

    Raises: ConfigError naming `name`.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ConfigError(f"{name} is {address!r}; it should be host:port with a port of 1 to 65535")
    return host.strip("[]"), int(port)


def local_address(address: str) -> str:
    """host:port at which this machine itself reaches what listens on `address`."""
    host, port = split_address(address, name="address")
    host = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def load_config(home: Path) -> NodeConfig:
    """Read and check DIR/config.toml.

    Raises: ConfigError.
    """
    path = home / CONFIG_NAME
    try:
        document = tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError as error:
        raise ConfigError(f"there is no {path}; make a node first: outerstep node init --home {home}") from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    try:
        return _build(NodeConfig, document, "")
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def save_config(home: Path, config: NodeConfig) -> None:
    """Write DIR/config.toml with a comment above every field, whole or not at all.

    Raises: ConfigError.
    """
    path = home / CONFIG_NAME
    try:
        write_atomically(path, render_config(config).encode())
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error


def render_config(config: NodeConfig) -> str:
    """The file's text."""
    head = ["# Configuration of one outerstep node; docs/running.md says more. Restart the node after a change."]
    return "\n".join(head + _render(config)) + "\n"


def _render(section: Any) -> list[str]:
    lines: list[str] = []
    for item in fields(section):
        value = getattr(section, item.name)
        if is_dataclass(value):
            about = (type(value).__doc__ or "").splitlines()[0]
            lines += ["", f"# --- {about}", f"[{item.name}]", *_render(value)]
        else:
            lines += [f"# {item.metadata['about']}", f"{item.name} = {_toml(value)}"]
    return lines


def _toml(value: object) -> str:
    if isinstance(value, tuple):
        return "[" + "".join(f"\n    {_toml(item)}," for item in value) + ("\n]" if value else "]")
    return json.dumps(value)


def _build(wanted: type[T], document: dict[str, Any], path: str) -> T:
    hints = get_type_hints(wanted)
    names = {item.name for item in fields(cast(Any, wanted))}
    values: dict[str, Any] = {}
    for name, value in document.items():
        where = f"{path}{name}"
        if name not in names:
            raise ConfigError(f"{where} is not a field; known here: {', '.join(sorted(names))}")
        hint = hints[name]
        if is_dataclass(hint):
            if not isinstance(value, dict):
                raise ConfigError(f"{where} should be a table: [{where}]")
            values[name] = _build(cast(type[Any], hint), value, f"{where}.")
        else:
            values[name] = _scalar(hint, value, where)
    return wanted(**values)


def _scalar(hint: Any, value: object, where: str) -> object:
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"{where} is {value!r}; it should be a list of texts")
        return tuple(_scalar(get_args(hint)[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if type(value) is not hint:
        raise ConfigError(f"{where} is {value!r}; it should be {'a text' if hint is str else 'a whole number'}")
    return value


def _check_range(section: Any, path: str, *, low: int, high: int) -> None:
    for item in fields(section):
        value = getattr(section, item.name)
        if not low <= value <= high:
            raise ConfigError(f"{path}.{item.name} is {value}; it should be {low} to {high}")
