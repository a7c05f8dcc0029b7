"""The public face of outerstep: connect to a node, read the chain, send transactions.

    async with outerstep.connect("http://127.0.0.1:26602") as client:
        print(await client.node_status())

Messages are in `abci_app.messages`, records in `abci_app.records`. Heavy parts are only imported when they are used.
"""

from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

from primitives.keys import PrivateKey

if TYPE_CHECKING:
    from node.client import Client

__all__ = ["Client", "PrivateKey", "__version__", "connect"]

__version__ = _version("outerstep")


def connect(
    url: str, *, key: PrivateKey | None = None, chain_id: str | None = None, timeout_s: float = 10.0
) -> "Client":
    """A client of the node at `url`, to be used as an async context manager; `key` signs what it sends."""
    from node.client import Client

    return Client(url, key=key, chain_id=chain_id, timeout_s=timeout_s)


def __getattr__(name: str) -> Any:
    if name == "Client":
        from node.client import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
