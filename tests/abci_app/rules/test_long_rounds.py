"""Whoever commits can reveal, however long the round is and however the stake moves meanwhile."""

import pytest
from msgspec.structs import replace

from abci_app import messages as m
from abci_app.params import Params
from abci_app.rules.rounds import needed_expiry, round_namespace
from primitives.blobs import BlobHeader, BlobPromise, ServiceSet
from primitives.hashing import sha256
from tests.abci_app.rules.chain import CHAIN_ID, TOKEN, Chain, address, make_genesis
from tests.abci_app.rules.rounds_kit import (
    all_ok,
    certify,
    commit,
    content_of,
    header_for,
    job_terms,
    reveal,
    started,
)

PARAMS = Params(unbonding_blocks=30)
LONGEST = {"train_blocks": 15, "commit_blocks": 5, "reveal_blocks": 10}


def certificate(chain: Chain, header: BlobHeader, set_version: int) -> m.PublishBlob:
    """Of w0's update in round 0, naming that set."""
    promise = BlobPromise(
        chain_id=CHAIN_ID,
        header=header,
        namespace=round_namespace(1, 0),
        expiry_height=needed_expiry(chain.job(), chain.round(0)),
        set_version=set_version,
        publisher=address("w0"),
    )
    return certify(promise)


def late_in_a_long_round() -> tuple[Chain, ServiceSet, BlobHeader, m.RevealUpdate]:
    """The last height for reveals comes next; the set that w0's blob was cut for was replaced at the very start."""
    chain = started("w0", "w1", "w2", chain=Chain(make_genesis(PARAMS)), **LONGEST)
    old, opened = chain.service_set(), chain.height
    header = header_for(content_of("w0", 0), old)
    opening = replace(reveal(chain, "w0"), blob=header.commitment)
    all_ok(chain, chain.tx("w0", commit(chain, "w0")), chain.tx("v0", m.Unbond(amount=10 * TOKEN)))
    chain.skip_to(opened + 19)
    all_ok(chain, chain.tx("w1", commit(chain, "w1")))
    chain.skip_to(opened + 21)
    assert chain.round(0).phase == "reveal"
    chain.skip_to(chain.round(0).deadline - 1)
    assert chain.height == opened + 30
    return chain, old, header, opening


def test_an_update_of_the_longest_round_can_be_certified_after_the_stake_has_changed() -> None:
    chain, old, header, opening = late_in_a_long_round()
    newest = chain.service_set()
    assert header.n != header_for("", newest).n, "the newest set would ask for other rows"
    assert chain.refused("w0", certificate(chain, header, newest.version), opening) == 93
    chain.ok("w0", certificate(chain, header, old.version), opening)
    assert chain.submission("w0", 0).blob == header.commitment


def test_one_block_later_its_set_is_too_old_and_so_is_the_phase() -> None:
    chain, old, header, opening = late_in_a_long_round()
    late = certificate(chain, header, old.version)
    chain.block()
    assert chain.refused("w0", late, opening) == 92
    assert chain.refused("w0", opening) in (67, 80)


@pytest.mark.parametrize("longer", LONGEST)
def test_a_round_that_could_outlast_the_sets_of_its_beginning_is_refused(longer: str) -> None:
    chain = Chain(make_genesis(PARAMS))
    too_long = job_terms(**LONGEST | {longer: LONGEST[longer] + 1})
    assert chain.refused("alice", m.CreateJob(key=sha256(b"job"), terms=too_long)) == 84
    chain.ok("alice", m.CreateJob(key=sha256(b"job"), terms=job_terms(**LONGEST)))
