"""Blocks that are executed before their decision, and signatures that are verified side by side."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from abci_app import execution
from abci_app.application import Application
from abci_app.blocks import FEW_SIGNATURES, Block, Executor, Start
from abci_app.errors import BadSignature, WrongNonce
from abci_app.known import KnownTransactions
from abci_app.server import abci_pb2 as pb
from abci_app.store import Store
from tests.abci_app.kit import ALICE, CHAIN_ID, block, init_chain, run_block, transfer

MANY = 2 * FEW_SIGNATURES


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "app") as store:
        yield store


@pytest.fixture
def application(store: Store) -> Iterator[Application]:
    application = Application(store, works_ahead=True)
    application.init_chain(init_chain())
    yield application
    application.close()


class Executions:
    """Counts transactions that are executed, and says in which threads."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[str] = []
        self._execute = execution.execute_transaction
        monkeypatch.setattr(execution, "execute_transaction", self._note)

    def _note(self, *arguments: object, **more: object) -> object:
        self.threads.append(threading.current_thread().name)
        return self._execute(*arguments, **more)  # type: ignore[arg-type]


def propose(application: Application, decided: pb.RequestFinalizeBlock) -> None:
    proposal = pb.RequestProcessProposal(txs=decided.txs, hash=decided.hash, height=decided.height, time=decided.time)
    assert application.process_proposal(proposal).status == pb.ResponseProcessProposal.ACCEPT


def codes(response: pb.ResponseFinalizeBlock) -> list[int]:
    return [result.code for result in response.tx_results]


def test_a_proposed_block_that_is_decided_is_executed_once(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    executions = Executions(monkeypatch)
    decided = block(1, [transfer(0), transfer(1)])
    propose(application, decided)
    propose(application, decided)
    assert codes(application.finalize_block(decided)) == [0, 0]
    assert [name.startswith("ahead") for name in executions.threads] == [True, True]


def test_only_the_very_same_block_is_taken(application: Application) -> None:
    decided = block(1, [transfer(0), transfer(1)])
    for other in (block(1, [transfer(0)]), block(1, decided.txs), block(1, decided.txs)):
        other.time.seconds += 1
        propose(application, other)
    assert codes(application.finalize_block(decided)) == [0, 0]
    assert codes(application.finalize_block(decided)) == [0, 0]


def test_working_ahead_gives_what_a_node_gets_that_does_not(application: Application, tmp_path: Path) -> None:
    with Store(tmp_path / "other") as store:
        other = Application(store)
        other.init_chain(init_chain())
        for height in range(1, 4):
            decided = block(height, [transfer(2 * height - 2), b"garbage", transfer(2 * height - 1)])
            proposal = block(height, [decided.txs[0], decided.txs[2]])
            propose(application, proposal)
            assert application.finalize_block(decided) == other.finalize_block(decided)
            application.commit(pb.RequestCommit())
            other.commit(pb.RequestCommit())
        decided = block(4, [transfer(6)])
        propose(application, decided)
        assert application.finalize_block(decided) == run_block(other, 4, decided.txs)


def test_a_bug_in_executing_ahead_is_not_lost(application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: object, **more: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(execution, "execute_transaction", fails)
    decided = block(1, [transfer(0)])
    propose(application, decided)
    with pytest.raises(ZeroDivisionError):
        application.finalize_block(decided)


def test_many_unknown_signatures_are_verified_before_the_block_and_bad_ones_are_refused_all_the_same(
    store: Store,
) -> None:
    application = Application(store)
    application.init_chain(init_chain())
    run_block(application, 1)
    txs = [transfer(nonce) for nonce in range(MANY)]
    forged = bytearray(txs[MANY - 1])
    forged[-1] ^= 1
    known = KnownTransactions()
    executor = Executor(store, known, works_ahead=False)
    decided = Block.of(block(2, [*txs[:-1], bytes(forged), txs[0]]))
    executed = executor.execute(Start(CHAIN_ID, None), decided)
    assert codes(executed.response) == [0] * (MANY - 1) + [BadSignature.code, WrongNonce.code]
    assert known.find(txs[0]) is not None
    assert known.find(bytes(forged)) is None
    executor.close()


def test_closing_waits_for_what_is_under_way(store: Store) -> None:
    application = Application(store, works_ahead=True)
    application.init_chain(init_chain())
    propose(application, block(1, [transfer(nonce, sender=ALICE) for nonce in range(MANY)]))
    application.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]
