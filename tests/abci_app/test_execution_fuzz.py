"""Whatever bytes come, there is one receipt and no exception; and what is refused for free leaves no trace."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from abci_app import messages as m
from abci_app.execution import execute_transaction
from abci_app.forms import FORMS
from abci_app.ledger import account_of, conservation_gap
from abci_app.state import Branch, MemoryState
from abci_app.transactions import Transaction, body_digest
from primitives.encoding import encode
from tests.abci_app.kit import check_transaction
from tests.abci_app.rules.chain import CHAIN_ID, address, key
from tests.abci_app.rules.rounds_kit import at_aggregate, job_terms

CHAIN = at_aggregate("w0", "w1")
TAGS = sorted(str(message.__struct_config__.tag) for message in FORMS)

integers = st.one_of(
    st.integers(-3, 20), st.sampled_from([2**31, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)]), st.booleans()
)
binaries = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([address("alice"), address("w0"), address("v0"), bytes(20), bytes(32), bytes(64)]),
)
texts = st.one_of(st.text(max_size=20), st.sampled_from(["hot", "temporary", "job/1/round/0", CHAIN_ID, "isal"]))
values = st.recursive(
    st.one_of(st.none(), integers, binaries, texts, st.floats(allow_nan=False)),
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=12,
)
plausible_messages = st.builds(lambda tag, fields: [tag, *fields], st.sampled_from(TAGS), st.lists(values, max_size=8))


def envelope(body: bytes) -> bytes:
    signature = key("alice").sign(body_digest(body))
    return encode(Transaction(body=body, public_key=key("alice").public_key, signature=signature))


def run(tx: bytes) -> None:
    """Execute and check; nothing may escape, nothing may stay behind without a due fee, and no money may move."""
    overlay = Branch(CHAIN.state)
    receipt = execute_transaction(overlay, tx, CHAIN.context())
    for recheck in (False, True):
        check_transaction(CHAIN.state, tx, chain_id=CHAIN_ID, height=CHAIN.height + 1, recheck=recheck)
    if receipt.work_used == 0:
        assert overlay.writes == {}
    after = MemoryState(CHAIN.state.items)
    after.apply(overlay)
    assert conservation_gap(after) == 0


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_arbitrary_bytes(tx: bytes) -> None:
    run(tx)


@given(values)
@settings(max_examples=200, deadline=None)
def test_arbitrary_values(value: object) -> None:
    run(msgspec.msgpack.encode(value))


@given(values)
@settings(max_examples=150, deadline=None)
def test_arbitrary_signed_bodies(value: object) -> None:
    run(envelope(msgspec.msgpack.encode(value)))


@given(st.lists(st.one_of(plausible_messages, values), max_size=4), integers, integers)
@settings(max_examples=400, deadline=None)
def test_signed_transactions_with_arbitrary_messages(messages: list[object], nonce: int, until: int) -> None:
    run(envelope(msgspec.msgpack.encode([CHAIN_ID, nonce, 10**6, until, messages])))


typed = st.one_of(
    st.builds(m.Transfer, to=binaries, amount=integers),
    st.builds(m.Bond, amount=integers),
    st.builds(m.Unbond, amount=integers),
    st.builds(m.RegisterWorker, bond=integers),
    st.builds(m.JoinJob, job_id=integers, genesis_root=binaries),
    st.builds(m.LeaveJob, job_id=integers),
    st.builds(m.CancelJob, job_id=integers),
    st.builds(m.CommitUpdate, job_id=integers, round_index=integers, commitment=binaries),
    st.builds(
        m.RevealUpdate,
        job_id=integers,
        round_index=integers,
        base_round=integers,
        blob=binaries,
        salt=binaries,
        samples=integers,
        loss_micro=integers,
    ),
    st.builds(
        m.ScoreUpdates,
        job_id=integers,
        round_index=integers,
        scores=st.lists(st.tuples(binaries, integers), max_size=3).map(tuple),
    ),
    st.builds(
        m.AttestState,
        job_id=integers,
        round_index=integers,
        state_root=binaries,
        rejected=st.lists(binaries, max_size=3).map(tuple),
    ),
    st.builds(
        m.CreateJob,
        key=binaries,
        terms=st.builds(
            lambda rounds, low, high, reward, blocks: job_terms(
                num_rounds=rounds, min_workers=low, max_workers=high, reward_per_round=reward, train_blocks=blocks
            ),
            integers,
            integers,
            integers,
            integers,
            integers,
        ),
    ),
    st.builds(
        m.CreateDeal,
        key=binaries,
        root=binaries,
        size=integers,
        tier=st.sampled_from(["hot", "temporary"]),
        replicas=integers,
        duration=integers,
        series=texts,
    ),
    st.builds(
        m.ActivateDeal, deal_id=integers, receipts=st.lists(st.tuples(binaries, binaries), max_size=3).map(tuple)
    ),
    st.builds(m.ExtendDeal, deal_id=integers, blocks=integers),
    st.builds(m.DeleteDeal, deal_id=integers),
    st.builds(m.RegisterService, service_key=binaries, possession_proof=binaries, url=texts),
    st.builds(m.RegisterValidator, consensus_key=binaries, possession_proof=binaries, bond=integers),
)


@given(st.lists(typed, min_size=1, max_size=3), st.sampled_from(["alice", "w0", "v0", "nobody"]))
@settings(max_examples=400, deadline=None)
def test_well_formed_envelopes_around_messages_with_arbitrary_fields(messages: list[m.Message], who: str) -> None:
    nonce = account_of(CHAIN.state, address(who)).nonce
    body = msgspec.msgpack.encode([CHAIN_ID, nonce, 10**6, 0, messages])
    signature = key(who).sign(body_digest(body))
    run(encode(Transaction(body=body, public_key=key(who).public_key, signature=signature)))


def test_every_message_type_has_a_tag_that_the_fuzzer_uses() -> None:
    assert len(TAGS) == len(set(TAGS)) == len(FORMS)
