"""Four applications in different conditions get the blocks of an adversary, and agree on everything.

The first has seen most transactions in its mempool before; the second is asked everything twice; the third is restarted
now and then; the fourth is killed between FinalizeBlock and Commit. The first two execute what is proposed before it is
decided. A fifth gets all blocks in the end, as in a replay.
"""

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from abci_app.errors import InvalidTransaction
from abci_app.ledger import conservation_gap
from abci_app.proposals import size_in_block
from abci_app.server import abci_pb2 as pb
from abci_app.transactions import decode_transaction
from abci_app.work import total_work
from tests.abci_app.engine_model import EngineValidators
from tests.abci_app.hostile_blocks import (
    GENESIS,
    KINDS,
    MAX_BLOCK_BYTES,
    MAX_BLOCK_WORK,
    MESSAGES,
    SENDERS,
    Node,
    Writer,
    block_of,
    outcome,
)

recipes = st.lists(
    st.tuples(
        st.sampled_from(KINDS), st.sampled_from(SENDERS), st.sampled_from(MESSAGES), st.binary(min_size=1, max_size=60)
    ),
    max_size=8,
)
offenders = st.lists(st.tuples(st.sampled_from(["v2", "v3", "nobody"]), st.integers(0, 8)), max_size=2)
kills = st.sampled_from(["no", "no", "after finalize", "before finalize"])


def decodes(tx: bytes) -> bool:
    try:
        decode_transaction(tx)
    except InvalidTransaction:
        return False
    return True


class HostileBlocks(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.nodes = [Node(Path(self.folder.name, str(index)), works_ahead=index < 2) for index in range(4)]
        assert len({node.start_chain() for node in self.nodes}) == 1
        self.engine = EngineValidators({bytes.fromhex(v.consensus_key): v.bond // 10**6 for v in GENESIS.validators})
        self.blocks: list[pb.RequestFinalizeBlock] = []
        self.seen: list[bytes] = []
        """Transactions that were somewhere before, for the adversary to use again."""

    @property
    def height(self) -> int:
        return len(self.blocks) + 1

    def write(self, recipe: list[Any]) -> list[bytes]:
        writer = Writer(self.nodes[0].application._state())
        txs = [tx for kind, who, make, noise in recipe for tx in writer.write(kind, who, make(who), noise)]
        self.seen.extend(txs)
        return txs

    @rule(recipe=recipes, everywhere=st.booleans())
    def transactions_reach_mempools(self, recipe: list[Any], everywhere: bool) -> None:
        for tx in self.write(recipe):
            for node in self.nodes if everywhere else self.nodes[:1]:
                code = node.check(tx)
                assert code or node.check(tx, again=True) in (0, code)

    @rule()
    def one_restarts(self) -> None:
        self.nodes[2].restart()

    @rule(recipe=recipes, old=st.lists(st.integers(0, 30), max_size=3), accused=offenders, kill=kills)
    def a_hostile_proposer_gets_its_block_decided(
        self, recipe: list[Any], old: list[int], accused: list[tuple[str, int]], kill: str
    ) -> None:
        repeated = [self.seen[index % len(self.seen)] for index in old if self.seen]
        self.decide([*self.write(recipe), *repeated], accused, kill)

    @rule(recipe=recipes, copies=st.integers(2, 40), accused=offenders)
    def a_block_is_fuller_than_it_may_be(self, recipe: list[Any], copies: int, accused: list[tuple[str, int]]) -> None:
        self.decide(self.write(recipe) * copies, accused, "no")

    @rule(recipe=recipes, room=st.integers(0, MAX_BLOCK_BYTES), accused=offenders, proposer=st.integers(0, 3))
    def an_honest_proposer_is_accepted_by_all(
        self, recipe: list[Any], room: int, accused: list[tuple[str, int]], proposer: int
    ) -> None:
        """Whatever its mempool holds, and however little room evidence leaves."""
        mempool = self.write(recipe) + self.seen[-40:]
        prepared = self.nodes[proposer].prepare(block_of(self.height, mempool, accused), room)
        assert len(pb.RequestFinalizeBlock(txs=prepared).SerializeToString()) <= room
        block = block_of(self.height, prepared, accused)
        assert all(node.accepts(block) for node in self.nodes)
        self.decide(prepared, accused, "no")

    @rule(recipe=recipes, other=recipes, accused=offenders)
    def another_block_was_proposed_before(
        self, recipe: list[Any], other: list[Any], accused: list[tuple[str, int]]
    ) -> None:
        """In an earlier round; whoever has begun with it lets go of it."""
        earlier = block_of(self.height, self.write(other))
        assert len({node.accepts(earlier) for node in self.nodes}) == 1
        self.decide(self.write(recipe), accused, "no")

    def decide(self, txs: list[bytes], accused: list[tuple[str, int]], kill: str) -> None:
        block = block_of(self.height, txs, [(name, max(1, self.height - back)) for name, back in accused])
        self.check_answers_to_proposal(block)
        if kill == "before finalize":
            self.nodes[3].restart()
        responses = [node.finalize(block) for node in self.nodes]
        responses.append(self.nodes[1].finalize(block))
        if kill == "after finalize":
            self.nodes[3].restart()
            responses.append(self.nodes[3].finalize(block))
        assert all(outcome(response) == outcome(responses[0]) for response in responses)
        assert len(responses[0].tx_results) == len(txs)
        for node in self.nodes:
            node.commit()
            assert node.application.info(pb.RequestInfo()).last_block_app_hash == responses[0].app_hash
        self.engine.apply((update.pub_key.ed25519, update.power) for update in responses[0].validator_updates)
        assert conservation_gap(self.nodes[0].store.committed) == 0
        self.blocks.append(block)

    def check_answers_to_proposal(self, block: pb.RequestFinalizeBlock) -> None:
        """Refused by all just when no honest proposer can have made it, whatever each has in its mempool."""
        honest = sum(size_in_block(tx) for tx in block.txs) <= MAX_BLOCK_BYTES and all(map(decodes, block.txs))
        if honest:
            bodies = [decode_transaction(tx)[1] for tx in block.txs]
            honest = sum(total_work(body.messages) for body in bodies) <= MAX_BLOCK_WORK
        for node in [*self.nodes, self.nodes[1]]:
            assert node.accepts(block) == honest

    def teardown(self) -> None:
        late = Node(Path(self.folder.name, "late"))
        late.start_chain()
        for block in self.blocks:
            late.finalize(block)
            late.commit()
        assert late.store.committed.app_hash == self.nodes[0].store.committed.app_hash
        for node in [*self.nodes, late]:
            node.close()
        self.folder.cleanup()


TestHostileBlocks = HostileBlocks.TestCase
TestHostileBlocks.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)
