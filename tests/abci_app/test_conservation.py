"""A random life of a chain: valid and invalid transactions of several accounts, random block boundaries, evidence.

After every block: no money came or went, counts and indexes agree with the records, CometBFT's set is never empty. In
the end a second, empty chain that gets the same blocks has the same state.
"""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from msgspec.structs import replace

from abci_app import messages as m
from abci_app import tables
from abci_app.block import Evidence
from abci_app.params import STAKE_PER_POWER, Params
from abci_app.records import Round
from abci_app.rules import phases
from abci_app.rules.jobs import is_expected
from abci_app.rules.validators import active_operators, is_active
from primitives.deals import receipt_digest
from primitives.hashing import sha256
from tests.abci_app.rules.chain import (
    CHAIN_ID,
    TOKEN,
    VALIDATORS,
    Chain,
    address,
    double_sign,
    key,
    make_genesis,
    possession,
    public,
)
from tests.abci_app.rules.rounds_kit import (
    GENESIS_ROOT,
    OTHER_ROOT,
    ROOT,
    commit,
    job_terms,
    publish,
    reveal,
)

WORKERS = ("w0", "w1", "w2", "w3")
EVERYBODY = ("alice", "bob", *WORKERS, *VALIDATORS)
NAMES = {address(name): name for name in EVERYBODY}
PARAMS = Params(unbonding_blocks=5, max_void_rounds=3, deal_pending_blocks=3, kept_service_sets=2)
FEW = 1
"""Jobs and workers that a block of a late life looks at: one job."""
SCORERS = tuple(sorted(address(v) for v in VALIDATORS[:2]))

someone = st.sampled_from(EVERYBODY)
a_worker = st.sampled_from(WORKERS)
a_validator = st.sampled_from(VALIDATORS)
amounts = st.sampled_from([1, 999, TOKEN, 10 * TOKEN, 50 * TOKEN, 100 * TOKEN, 10**16])
job_ids = st.sampled_from([1, 1, 2, 3])
deal_ids = st.integers(1, 4)


class ChainLife(RuleBasedStateMachine):
    """Transactions collect in `pending`; the rule `end_blocks` makes a block of them."""

    def __init__(self) -> None:
        super().__init__()
        self.genesis = make_genesis(PARAMS, stakes=(100, 80, 60, 20))
        self.chain = Chain(self.genesis)
        self.pending: list[bytes] = []
        self.evidence: list[Evidence] = []
        self.queued: Counter[str] = Counter()
        self.history: list[tuple[list[bytes], list[Evidence]]] = []

    def queue(self, sender: str, *messages: m.Message) -> None:
        self.pending.append(self.chain.tx(sender, *messages, nonce_ahead=self.queued[sender]))
        self.queued[sender] += 1

    @initialize(scored=st.booleans())
    def start_with_two_jobs(self, scored: bool) -> None:
        """So that most lives see rounds; the rules make more jobs and break these."""
        self.create_job(0, least=2, scored=scored, rounds=2)
        self.create_job(1, least=1, scored=not scored, rounds=2)
        for who in WORKERS[:3]:
            self.register_and_join(who, 1)
            self.queue(who, m.JoinJob(job_id=2, genesis_root=GENESIS_ROOT))
        self.end_blocks(0)

    # --- blocks -----------------------------------------------------------------------------------------------
    @rule(empty_after=st.integers(0, 3))
    def end_blocks(self, empty_after: int) -> None:
        for _ in range(1 + empty_after):
            self.history.append((self.pending, self.evidence))
            self.chain.block(*self.pending, evidence=self.evidence)
            self.pending, self.evidence = [], []
            self.queued.clear()
            self.check()

    @rule(who=st.sampled_from(["v0", "v3", "nobody"]))
    def report_double_signature(self, who: str) -> None:
        self.evidence.append(double_sign(who, height=self.chain.height))

    @rule(garbage=st.binary(max_size=30))
    def put_garbage_into_the_block(self, garbage: bytes) -> None:
        self.pending.append(garbage)

    @rule(index=st.integers(0, 20))
    def put_a_transaction_in_twice(self, index: int) -> None:
        self.pending.extend(self.pending[index : index + 1])

    # --- accounts and stake -----------------------------------------------------------------------------------
    @rule(sender=someone, to=someone, amount=amounts)
    def transfer(self, sender: str, to: str, amount: int) -> None:
        self.queue(sender, m.Transfer(to=address(to), amount=amount))

    @rule(sender=a_validator, amount=amounts, back=st.booleans())
    def change_bond(self, sender: str, amount: int, back: bool) -> None:
        self.queue(sender, m.Unbond(amount=amount) if back else m.Bond(amount=amount))

    @rule(amount=amounts)
    def register_validator(self, amount: int) -> None:
        self.queue("bob", m.RegisterValidator(public("bob"), possession("bob"), amount))

    @rule(sender=a_worker, bond=amounts, retire=st.booleans())
    def worker_bond(self, sender: str, bond: int, retire: bool) -> None:
        self.queue(sender, m.RetireWorker() if retire else m.RegisterWorker(bond=bond))

    # --- jobs -------------------------------------------------------------------------------------------------
    @rule(number=st.integers(0, 3), least=st.integers(1, 2), scored=st.booleans(), rounds=st.integers(1, 2))
    def create_job(self, number: int, least: int, scored: bool, rounds: int) -> None:
        terms = job_terms(
            num_rounds=rounds,
            min_workers=least,
            max_workers=3,
            reward_per_round=100,
            train_blocks=2,
            commit_blocks=1,
            reveal_blocks=2,
            score_blocks=2,
            aggregate_blocks=2,
            scorers=SCORERS if scored else (),
        )
        self.queue("alice", m.CreateJob(key=sha256(b"%d" % number), terms=terms))

    @rule(sender=a_worker, job_id=job_ids)
    def register_and_join(self, sender: str, job_id: int) -> None:
        join = m.JoinJob(job_id=job_id, genesis_root=GENESIS_ROOT)
        registered = tables.WORKERS.get(self.chain.state, address(sender)) is not None
        self.queue(sender, *(() if registered else (m.RegisterWorker(bond=10 * TOKEN),)), join)

    @rule(sender=a_worker, job_id=job_ids)
    def leave_job(self, sender: str, job_id: int) -> None:
        self.queue(sender, m.LeaveJob(job_id=job_id))

    @rule(sender=st.sampled_from(["alice", "bob"]), job_id=job_ids)
    def cancel_job(self, sender: str, job_id: int) -> None:
        self.queue(sender, m.CancelJob(job_id=job_id))

    @rule(job_id=job_ids, actors=st.lists(someone, min_size=1, max_size=4, unique=True), liar=st.booleans())
    def act_in_round(self, job_id: int, actors: list[str], liar: bool) -> None:
        """Whatever the open round waits for, from these actors (some of whom have no say)."""
        round_ = self.open_round(job_id)
        if round_ is None:
            return
        for who in actors:
            self.act(who, round_, liar=liar and who == actors[0])

    @rule(job_id=job_ids, liar=st.booleans())
    def all_act_in_round(self, job_id: int, liar: bool) -> None:
        round_ = self.open_round(job_id)
        if round_ is not None:
            self.act_in_round(job_id, [*(NAMES[worker] for worker in round_.expected), "v0", "v1"], liar)

    @rule(job_id=job_ids, liar=st.sampled_from([False, False, True]), phases=st.integers(2, 10))
    def all_act_for_some_phases(self, job_id: int, liar: bool, phases: int) -> None:
        for _ in range(phases):
            self.all_act_in_round(job_id, liar)
            self.end_blocks(0)

    def open_round(self, job_id: int) -> Round | None:
        job = tables.JOBS.get(self.chain.state, job_id)
        return None if job is None else tables.ROUNDS.get(self.chain.state, job_id, max(job.open_round, 0))

    def act(self, who: str, round_: Round, *, liar: bool) -> None:
        index, job_id = round_.index, round_.job_id
        if round_.phase in ("train", "commit"):
            self.queue(who, commit(self.chain, who, index, job_id=job_id))
        elif round_.phase == "reveal":
            opening = reveal(self.chain, who, index, job_id=job_id)
            opening = replace(opening, salt=bytes(32)) if liar else opening
            self.queue(who, publish(self.chain, who, index, job_id=job_id), opening)
        elif round_.phase == "score":
            revealed = [s for _, s in tables.SUBMISSIONS.iterate(self.chain.state, job_id, index) if s.blob]
            scores = tuple((s.worker, -5 if liar else 7) for s in revealed)
            self.queue(who, m.ScoreUpdates(job_id=job_id, round_index=index, scores=scores))
        else:
            rejected = round_.included[:1] if liar else ()
            root = OTHER_ROOT if liar else ROOT
            self.queue(who, m.AttestState(job_id=job_id, round_index=index, state_root=root, rejected=rejected))

    # --- deals ------------------------------------------------------------------------------------------------
    @rule(number=st.integers(0, 4), replicas=st.integers(1, 5), duration=st.integers(1, 5))
    def create_deal(self, number: int, replicas: int, duration: int) -> None:
        deal = m.CreateDeal(
            key=sha256(b"%d" % number),
            root=sha256(b"file"),
            size=number * 1_000_000,
            tier="hot",
            replicas=replicas,
            duration=duration,
            series="",
        )
        self.queue("alice", deal)

    @rule(deal_id=deal_ids)
    def activate_deal(self, deal_id: int) -> None:
        deal = tables.DEALS.get(self.chain.state, deal_id)
        if deal is not None:
            digest = receipt_digest(CHAIN_ID, deal.id, deal.root, deal.size)
            signed = tuple((op, key(f"service:{NAMES[op]}").sign(digest)) for op in deal.providers)
            self.queue("bob", m.ActivateDeal(deal_id=deal_id, receipts=signed))

    @rule(sender=st.sampled_from(["alice", "bob"]), deal_id=deal_ids, blocks=st.integers(1, 4))
    def extend_deal(self, sender: str, deal_id: int, blocks: int) -> None:
        self.queue(sender, m.ExtendDeal(deal_id=deal_id, blocks=blocks))

    @rule(sender=st.sampled_from(["alice", "bob"]), deal_id=deal_ids)
    def delete_deal(self, sender: str, deal_id: int) -> None:
        self.queue(sender, m.DeleteDeal(deal_id=deal_id))

    # --- what must hold ---------------------------------------------------------------------------------------
    def check(self) -> None:
        state = self.chain.state
        held: Counter[bytes] = Counter()
        for _, member in tables.MEMBERS.iterate(state):
            job = self.chain.job(member.job_id)
            held[member.worker] += member.active or is_expected(state, job, member.worker)
        for _, worker in tables.WORKERS.iterate(state):
            assert worker.open_jobs == held[worker.address]
        living = {deal.id for _, deal in tables.DEALS.iterate(state) if deal.status in ("pending", "active")}
        assert len(list(tables.DEALS_BY_END.iterate(state))) == len(living)
        for _, deal in tables.DEALS.iterate(state):
            assert (deal.escrow > 0) == (deal.id in living)
            assert deal.id not in living or deal.end_height >= self.chain.height
        for _, job in tables.JOBS.iterate(state):
            assert (job.status in ("open", "closing")) == (job.escrow > 0)
            in_time = job.open_round < 0 or self.chain.round(job.open_round, job.id).deadline >= self.chain.height
            assert in_time or phases.MAX_LOOKED_AT_PER_BLOCK == FEW
        self.check_powers()
        self.check_unbondings()

    def check_unbondings(self) -> None:
        state = self.chain.state
        indexed = {key[-16:] for key, _ in tables.UNBONDINGS_OF.iterate(state)}
        taken_out = {key[-16:] for key, record in tables.UNBONDINGS.iterate(state) if record.role == "validator"}
        assert indexed == taken_out

    def check_powers(self) -> None:
        state = self.chain.state
        prefix = len(tables.POWERS.prefix)
        powers = {k[prefix:]: record.power for k, record in tables.POWERS.iterate(state)}
        active = [v for _, v in tables.VALIDATORS.iterate(state) if is_active(v, self.chain.params.min_validator_bond)]
        assert powers, "the validator set is never empty"
        by_stake = sorted(active, key=lambda v: (-v.bond, v.operator))
        assert list(active_operators(state)) == [v.operator for v in by_stake]
        if active:
            assert powers == {v.consensus_key: v.bond // STAKE_PER_POWER for v in active}
            assert [member.stake for member in self.chain.service_set().members] == [v.bond for v in active]

    def teardown(self) -> None:
        again = Chain(self.genesis)
        for txs, evidence in self.history:
            again.block(*txs, evidence=evidence)
        assert again.state.items == self.chain.state.items


TestChainLife = ChainLife.TestCase
TestChainLife.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


class LateChainLife(ChainLife):
    """A block looks at one job only, so that rounds of the others go on late."""

    def __init__(self) -> None:
        super().__init__()
        self._usual = phases.MAX_LOOKED_AT_PER_BLOCK
        phases.MAX_LOOKED_AT_PER_BLOCK = FEW  # type: ignore[misc]

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            phases.MAX_LOOKED_AT_PER_BLOCK = self._usual  # type: ignore[misc]


TestLateChainLife = LateChainLife.TestCase
TestLateChainLife.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
