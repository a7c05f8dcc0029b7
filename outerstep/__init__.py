"""The public face of outerstep: connect to a node, read the chain, send transactions.

    async with outerstep.connect("http://127.0.0.1:26602") as client:
        print(await client.node_status())

Messages are in `abci_app.messages`, records in `abci_app.records`. Heavy parts are only imported when they are used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from node.client import Client
    from primitives.keys import PrivateKey

    __version__: str

__all__ = ["Client", "PrivateKey", "__version__", "connect"]


def connect(
    url: str, *, key: "PrivateKey | None" = None, chain_id: str | None = None, timeout_s: float = 10.0
) -> "Client":
    """A client of the node at `url`, to be used as an async context manager; `key` signs what it sends."""
    from node.client import Client

    return Client(url, key=key, chain_id=chain_id, timeout_s=timeout_s)


def __getattr__(name: str) -> Any:
    if name == "Client":
        from node.client import Client

        return Client
    if name == "PrivateKey":
        from primitives.keys import PrivateKey

        return PrivateKey
    if name == "__version__":
        from importlib.metadata import version

        return version("outerstep")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
