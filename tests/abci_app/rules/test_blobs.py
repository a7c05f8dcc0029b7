"""Certificates of data availability."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from abci_app import messages as m
from abci_app import tables
from abci_app.params import Params
from abci_app.rules.blobs import blob_key, blob_price
from primitives.blobs import MAX_BLOB_BYTES, Attestation, BlobPromise, row_size_for
from primitives.hashing import sha256
from tests.abci_app.rules.chain import TOKEN, VALIDATORS, Chain, address, double_sign, key, make_genesis
from tests.abci_app.rules.rounds_kit import certify, promise_for

MIB = 1024 * 1024


def promise(chain: Chain, publisher: str = "alice", *, lifetime: int = 50) -> BlobPromise:
    return promise_for(chain, publisher, "content", "some/namespace", expiry=chain.height + 1 + lifetime)


def test_certified_blob_is_recorded() -> None:
    chain = Chain()
    wanted = promise(chain)
    chain.ok("alice", certify(wanted))
    blob = tables.BLOBS.get(chain.state, *blob_key(wanted.header.commitment, address("alice"), "some/namespace"))
    assert blob is not None
    assert (blob.header, blob.publisher, blob.expiry_height) == (wanted.header, address("alice"), wanted.expiry_height)
    assert blob.certified_height == chain.height
    assert blob.attesters == tuple(sorted(address(v) for v in VALIDATORS))
    assert [(e.kind, e.attributes) for e in chain.events] == [("blob", {"commitment": wanted.header.commitment.hex()})]
    assert [record for _, record in tables.BLOBS.iterate(chain.state, wanted.header.commitment)] == [blob]


def test_price_goes_to_the_attesters_by_stake_and_the_rest_is_burned() -> None:
    chain = Chain(make_genesis(Params(), stakes=(100, 50, 30, 20)))
    before = {v: chain.balance(v) for v in VALIDATORS}
    balance, burned = chain.balance("alice"), chain.burned
    receipt = chain.ok("alice", certify(promise(chain, lifetime=7), ("v0", "v1")))
    assert blob_price(1000, 7, chain.params) == 70
    assert chain.balance("v0") - before["v0"] == 46
    assert chain.balance("v1") - before["v1"] == 23
    assert chain.balance("v2") == before["v2"]
    assert chain.balance("alice") == balance - 70 - receipt.work_used
    assert chain.burned == burned + 1 + receipt.work_used


@pytest.mark.parametrize(("size", "mebibytes"), [(1, 1), (MIB, 1), (MIB + 1, 2), (MAX_BLOB_BYTES, 128)])
def test_price_counts_begun_mebibytes(size: int, mebibytes: int) -> None:
    params = Params()
    assert blob_price(size, 3, params) == mebibytes * 3 * params.blob_price_per_mib_block


def test_blob_that_the_publisher_cannot_pay_is_refused() -> None:
    chain = Chain(make_genesis(Params(blob_price_per_mib_block=10**12)))
    assert chain.refused("alice", certify(promise(chain))) == 22


@pytest.mark.parametrize(("lifetime", "code"), [(-1, 94), (0, 94), (1, 0), (100_000, 0), (100_001, 94)])
def test_expiry_must_be_ahead_and_not_too_far(lifetime: int, code: int) -> None:
    chain = Chain()
    chain.skip_to(10)
    assert chain.send("alice", certify(promise(chain, lifetime=lifetime))).code == code


@pytest.mark.parametrize(
    ("stakes", "attesters", "code"),
    [
        ((100, 100, 100), ("v0", "v1"), 0),
        ((100, 100, 101), ("v0", "v1"), 96),
        ((100, 100, 100, 100), ("v0", "v1"), 96),
        ((100, 100, 100, 100), ("v0", "v1", "v2"), 0),
        ((100, 100, 100, 100), (), 96),
    ],
)
def test_exactly_two_thirds_of_the_stake_are_enough(
    stakes: tuple[int, ...], attesters: tuple[str, ...], code: int
) -> None:
    chain = Chain(make_genesis(stakes=stakes))
    assert chain.send("alice", certify(promise(chain), attesters)).code == code


Forge = Callable[[BlobPromise], BlobPromise]


def with_header(**changes: object) -> Forge:
    return lambda base: replace(base, header=replace(base.header, **changes))


FORGED: list[tuple[str, Forge, int]] = [
    ("other chain", lambda base: replace(base, chain_id="other"), 4),
    ("publisher is somebody else", lambda base: replace(base, publisher=address("bob")), 97),
    ("set that is not there yet", lambda base: replace(base, set_version=2), 92),
    ("other k", with_header(k=16, row_size=row_size_for(1000, 16)), 93),
    ("n one too many", with_header(n=97), 93),
    ("n one too few", with_header(n=95), 93),
    ("codec unknown", with_header(codec="zip"), 6),
    ("version unknown", with_header(version=2), 6),
    ("empty blob", with_header(size=0), 6),
    ("blob too large", with_header(size=MAX_BLOB_BYTES + 1, row_size=row_size_for(MAX_BLOB_BYTES + 1, 32)), 6),
    ("row size too large", with_header(row_size=128), 6),
    ("row size too small", with_header(row_size=0), 6),
    ("root too short", with_header(rows_root=b"x" * 31), 6),
    ("k below one", with_header(k=0), 6),
    ("k negative", with_header(k=-32), 6),
    ("more rows than the field has", with_header(n=256), 6),
    ("namespace empty", lambda base: replace(base, namespace=""), 6),
    ("namespace with spaces", lambda base: replace(base, namespace="a b"), 6),
    ("namespace too long", lambda base: replace(base, namespace="a" * 65), 6),
    ("publisher too short", lambda base: replace(base, publisher=b"x"), 6),
    ("set version zero", lambda base: replace(base, set_version=0), 6),
]


@pytest.mark.parametrize(("forge", "code"), [case[1:] for case in FORGED], ids=[case[0] for case in FORGED])
def test_promise_out_of_order_is_refused(forge: Forge, code: int) -> None:
    chain = Chain()
    receipt = chain.send("alice", certify(forge(promise(chain))))
    assert receipt.code == code, receipt.log


def test_largest_blob_is_accepted() -> None:
    chain = Chain()
    large = with_header(size=MAX_BLOB_BYTES, row_size=row_size_for(MAX_BLOB_BYTES, 32))
    assert chain.send("alice", certify(large(promise(chain)))).code == 0


def changed(message: m.PublishBlob, attestations: tuple[Attestation, ...]) -> m.PublishBlob:
    return m.PublishBlob(certificate=replace(message.certificate, attestations=attestations))


def test_one_bad_attestation_spoils_the_certificate() -> None:
    chain = Chain()
    good = certify(promise(chain))
    entries = good.certificate.attestations
    swapped = replace(entries[0], signature=entries[1].signature)
    assert chain.refused("alice", changed(good, (swapped, *entries[1:]))) == 95
    other = certify(promise(chain, lifetime=51)).certificate.attestations
    assert chain.refused("alice", changed(good, (other[0], *entries[1:]))) == 95
    stranger = Attestation(address("bob"), key("bob").sign(good.certificate.promise.attestation_digest))
    both = tuple(sorted((stranger, *entries), key=lambda entry: entry.operator))
    assert chain.refused("alice", changed(good, both)) == 95


def test_attestation_counts_once_and_in_order() -> None:
    chain = Chain()
    good = certify(promise(chain))
    entries = good.certificate.attestations
    for wrong in ((entries[0], entries[0], entries[1]), tuple(reversed(entries))):
        receipt = chain.send("alice", changed(good, wrong))
        assert receipt.code == 6


def test_same_blob_is_certified_once_until_it_expires() -> None:
    chain = Chain()
    first = promise(chain, lifetime=5)
    chain.ok("alice", certify(first))
    chain.skip_to(first.expiry_height - 1)
    assert chain.refused("alice", certify(promise(chain))) == 91
    chain.skip_to(first.expiry_height)
    chain.ok("alice", certify(promise(chain)))


def test_same_content_is_kept_apart_by_publisher_and_by_namespace() -> None:
    chain = Chain()
    mine = promise(chain)
    chain.ok("bob", certify(replace(mine, publisher=address("bob"))))
    chain.ok("alice", certify(mine))
    chain.ok("alice", certify(replace(mine, namespace="another")))
    assert len(list(tables.BLOBS.iterate(chain.state, mine.header.commitment))) == 3


def test_a_validator_cannot_outdate_a_set_by_changing_its_stake_in_every_block() -> None:
    chain = Chain(make_genesis(Params(kept_service_sets=2, unbonding_blocks=20)))
    old = promise(chain)
    chain.ok("v0", m.Unbond(amount=10 * TOKEN))
    for _ in range(19):
        chain.ok("v0", m.Bond(amount=1))
    chain.ok("alice", certify(old))
    assert chain.refused("alice", certify(replace(old, namespace="later"))) == 92


@pytest.mark.parametrize(("offset", "code"), [(-1, 0), (0, 0), (1, 92)])
def test_certificate_may_name_a_replaced_set_only_while_its_stake_is_slashable(offset: int, code: int) -> None:
    chain = Chain(make_genesis(Params(unbonding_blocks=5)))
    old = promise(chain)
    chain.ok("v0", m.Bond(amount=TOKEN))
    chain.skip_to(chain.height + 5 + offset - 1)
    assert chain.send("alice", certify(old)).code == code


def test_attesters_are_those_of_the_named_set_even_if_they_left() -> None:
    chain = Chain()
    old = promise(chain)
    chain.block(evidence=[double_sign("v0")])
    chain.ok("alice", certify(old))
    new = promise(chain, "bob")
    assert new.set_version == 2
    assert chain.send("bob", certify(new)).code == 95


def test_commitment_binds_the_whole_header() -> None:
    header = promise(Chain()).header
    assert header.commitment != replace(header, rows_root=sha256(b"x")).commitment
    assert header.commitment != replace(header, size=999).commitment
