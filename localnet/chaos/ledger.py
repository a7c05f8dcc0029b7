"""What senders were told, against what the blocks say, against what the accounts hold: blocks in, findings out."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from abci_app.messages import Transfer
from abci_app.records import Account
from abci_app.transactions import decode_transaction
from localnet.chaos.history import BlockTx, History


@dataclass(slots=True)
class Told:
    """What the nodes told the senders of the load."""

    payments: dict[bytes, int] = field(default_factory=dict)
    """Recipient to amount, 10^-6 token; each payment has a recipient of its own."""
    sent: set[bytes] = field(default_factory=set)
    """Hashes of all transactions that were handed to a node."""
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    """Hash to height: committed, said a node."""
    refused: set[bytes] = field(default_factory=set)
    """Never executed and never will be, said a node; by recipient of the payment."""


@dataclass(frozen=True, slots=True)
class LedgerFindings:
    lost: frozenset[bytes]
    """Acknowledged transactions that are not where they were said to be, by hash."""
    executed_twice: frozenset[bytes]
    """Recipients that were paid more than once."""
    wrong_accounts: frozenset[bytes]
    """Accounts that do not hold what the executed transactions leave them, on any node."""
    falsely_refused: frozenset[bytes]
    """Recipients that were paid though the payment was said to be void."""
    executed: int
    """Transactions with code 0."""


def audit_ledger(
    told: Told,
    histories: Sequence[History],
    genesis: Mapping[bytes, Account],
    accounts: Sequence[Mapping[bytes, Account]],
) -> LedgerFindings:
    """Compare.

    Args: histories, of every node, the first one with all blocks; genesis, the accounts before the first block;
    accounts, of every node after the last block.
    """
    history = histories[0]
    executed = [tx for block in history.values() for tx in block.txs if tx.code == 0]
    paid = Counter(transfer.to for tx in executed for transfer in _transfers(tx))
    repeated = {hash_ for hash_, times in Counter(tx.hash for tx in executed).items() if times > 1}
    twice = {to for to in told.payments if paid[to] > 1}
    twice |= {transfer.to for tx in executed if tx.hash in repeated for transfer in _transfers(tx)}
    expected = expected_accounts(history, genesis)
    wrong = {
        address
        for address, account in expected.items()
        if any(held.get(address, Account()) != account for held in accounts)
    }
    wrong |= {to for to, amount in told.payments.items() if to in expected and expected[to].balance not in (0, amount)}
    return LedgerFindings(
        lost=frozenset(hash_ for hash_, height in told.acknowledged.items() if _is_lost(hash_, height, histories)),
        executed_twice=frozenset(twice),
        wrong_accounts=frozenset(wrong),
        falsely_refused=frozenset(to for to in told.refused if paid[to]),
        executed=len(executed),
    )


def expected_accounts(history: History, genesis: Mapping[bytes, Account]) -> dict[bytes, Account]:
    """Accounts after the last block, by fees and transfers alone.

    Left out are accounts that ever sent another message, since other rules move their money too.
    """
    balances = Counter({address: account.balance for address, account in genesis.items()})
    nonces = Counter({address: account.nonce for address, account in genesis.items()})
    others = set[bytes]()
    for height in sorted(history):
        for tx in history[height].txs:
            if not tx.charged:
                continue
            envelope, body = decode_transaction(tx.data)
            nonces[envelope.sender] += 1
            balances[envelope.sender] -= body.fee
            for message in body.messages if tx.code == 0 else ():
                if isinstance(message, Transfer):
                    balances[envelope.sender] -= message.amount
                    balances[message.to] += message.amount
                else:
                    others.add(envelope.sender)
    touched = (balances.keys() | nonces.keys()) - others
    return {address: Account(balance=balances[address], nonce=nonces[address]) for address in touched}


def _is_lost(hash_: bytes, height: int, histories: Sequence[History]) -> bool:
    """Whether a node that has this block does not have the transaction in it, or no node has the block."""
    blocks = [history[height] for history in histories if height in history]
    return not blocks or any(all(tx.hash != hash_ or tx.code for tx in block.txs) for block in blocks)


def _transfers(tx: BlockTx) -> list[Transfer]:
    return [message for message in decode_transaction(tx.data)[1].messages if isinstance(message, Transfer)]
