"""After the load has ended: every block, promise and account of a network, compared."""

from collections.abc import Callable
from typing import Final

from localnet.audit import count_supply, read_accounts
from localnet.chaos.findings import NODES, NetworkFindings
from localnet.chaos.history import differing, genesis_accounts, read_history
from localnet.chaos.ledger import audit_ledger
from localnet.network import Localnet

EQUAL_S: Final = 60.0
"""How long all nodes may take to reach one height."""
MOST_SHOWN: Final = 20


async def audit_network(net: Localnet, found: NetworkFindings, say: Callable[[str], None]) -> None:
    """Compare all nodes with one another and with what the senders were told; fills `found`.

    Raises: TimeoutError, StartFailed, AuditFailed.
    """
    height = max(health.height for health in await net.health())
    await net.wait_for_height(height + 1, nodes=range(NODES), timeout_s=EQUAL_S)
    say(f"reading {height} blocks from each of {NODES} nodes")
    histories = [await read_history(node, height) for node in net.nodes]
    for different in differing(histories)[:MOST_SHOWN]:
        say(f"  height {different}: {[history.get(different) for history in histories]}")
    accounts = [await read_accounts(node) for node in net.nodes]
    counts = [await count_supply(node) for node in net.nodes]
    found.histories = list(histories)
    found.ledger = audit_ledger(found.told, histories, genesis_accounts(net.nodes[0]), accounts)
    found.supply_conserved = all(count.conserved for count in counts)
