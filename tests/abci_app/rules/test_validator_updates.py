"""Whatever bonds, unbonds and double signatures come: what CometBFT is told never stops it and is what stakes say."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from abci_app import messages as m
from abci_app import tables
from abci_app.block import Evidence
from abci_app.params import STAKE_PER_POWER, Params
from abci_app.rules.validators import is_active
from primitives.amounts import MAX_AMOUNT
from tests.abci_app.engine_model import MAX_TOTAL_POWER, EngineValidators, IllegalUpdate
from tests.abci_app.rules.chain import PEOPLE, TOKEN, VALIDATORS, Chain, double_sign, make_genesis, possession, public

OPERATORS = (*VALIDATORS, *PEOPLE)
operators = st.sampled_from(OPERATORS)
amounts = st.sampled_from([1, TOKEN - 1, TOKEN, 9 * TOKEN, 10 * TOKEN, 11 * TOKEN, 90 * TOKEN, 100 * TOKEN])


class ValidatorLife(RuleBasedStateMachine):
    """Transactions and evidence collect; `end_block` hands them to the rules and the updates to a model of CometBFT."""

    @initialize(stakes=st.lists(st.integers(10, 100), min_size=1, max_size=4), most=st.integers(4, 6))
    def start(self, stakes: list[int], most: int) -> None:
        params = Params(unbonding_blocks=4, max_validators=most)
        self.chain = Chain(make_genesis(params, stakes=stakes))
        self.engine = EngineValidators({public(f"v{i}"): stake for i, stake in enumerate(stakes)})
        self.pending: list[bytes] = []
        self.evidence: list[Evidence] = []
        self.queued: Counter[str] = Counter()

    def queue(self, operator: str, message: m.Message) -> None:
        self.pending.append(self.chain.tx(operator, message, nonce_ahead=self.queued[operator]))
        self.queued[operator] += 1

    @rule(operator=operators, bond=st.sampled_from([10 * TOKEN, 50 * TOKEN]))
    def register(self, operator: str, bond: int) -> None:
        self.queue(operator, m.RegisterValidator(public(operator), possession(operator), bond))

    @rule(operator=operators, amount=amounts)
    def bond(self, operator: str, amount: int) -> None:
        self.queue(operator, m.Bond(amount=amount))

    @rule(operator=operators, amount=amounts)
    def unbond(self, operator: str, amount: int) -> None:
        self.queue(operator, m.Unbond(amount=amount))

    @rule()
    def everybody_leaves(self) -> None:
        for _, validator in tables.VALIDATORS.iterate(self.chain.state):
            name = next(name for name in OPERATORS if public(name) == validator.consensus_key)
            self.queue(name, m.Unbond(amount=max(1, validator.bond)))

    @rule(operator=operators)
    def sign_twice(self, operator: str) -> None:
        self.evidence.append(double_sign(operator, height=self.chain.height))

    @rule(empty_after=st.integers(0, 5))
    def end_block(self, empty_after: int) -> None:
        for _ in range(1 + empty_after):
            self.chain.block(*self.pending, evidence=self.evidence)
            self.pending, self.evidence = [], []
            self.queued.clear()
            self.engine.apply(self.chain.end.validator_updates)
            least, most = self.chain.params.min_validator_bond, self.chain.params.max_validators
            active = [v for _, v in tables.VALIDATORS.iterate(self.chain.state) if is_active(v, least)]
            chosen = sorted(active, key=lambda v: (-v.bond, v.operator))[:most]
            if chosen:
                assert self.engine.powers == {v.consensus_key: v.bond // STAKE_PER_POWER for v in chosen}

    @rule()
    def whoever_signs_is_punished(self) -> None:
        """The worst that there can be: all of the next block's signers."""
        signers = [name for name in OPERATORS if public(name) in self.engine.signing]
        for name in signers:
            self.sign_twice(name)
        self.end_block(0)
        assert all(self.chain.validator(name).jailed for name in signers)


TestValidatorLife = ValidatorLife.TestCase
TestValidatorLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize(
    "updates",
    [
        [(bytes(32), -1)],
        [(bytes(32), 1), (bytes(32), 2)],
        [(b"\x01" * 32, 0)],
        [(bytes(32), 0)],
        [(b"\x01" * 32, MAX_TOTAL_POWER)],
        [(b"\x01" * 31, 1)],
    ],
    ids=["negative", "twice", "removal of an unknown one", "nobody left", "overflow", "not a key"],
)
def test_the_model_refuses_what_stops_cometbft(updates: list[tuple[bytes, int]]) -> None:
    with pytest.raises(IllegalUpdate):
        EngineValidators({bytes(32): 5}).apply(updates)


def test_an_update_counts_two_blocks_later() -> None:
    engine = EngineValidators({bytes(32): 5})
    engine.apply([(b"\x01" * 32, 7)])
    assert len(engine.signing) == 1
    engine.apply([])
    assert len(engine.signing) == 2


def test_all_the_money_that_there_can_be_is_less_power_than_cometbft_counts_to() -> None:
    assert MAX_AMOUNT // STAKE_PER_POWER < MAX_TOTAL_POWER
