"""Jobs, rounds and blobs for tests: everything that takes a signature or a commitment, ready made."""

from collections.abc import Sequence

from msgspec.structs import replace

from abci_app import messages as m
from abci_app.rules.rounds import needed_expiry, round_namespace
from abci_app.transactions import update_commitment
from primitives.blobs import (
    Attestation,
    BlobHeader,
    BlobPromise,
    Certificate,
    ServiceSet,
    data_rows_for,
    row_counts,
    row_size_for,
)
from primitives.hashing import sha256
from tests.abci_app.rules.chain import CHAIN_ID, TOKEN, VALIDATORS, Chain, address, key

SALT = sha256(b"salt")
ROOT = sha256(b"next state")
OTHER_ROOT = sha256(b"another state")
GENESIS_ROOT = sha256(b"genesis state")
REWARD = 100 * TOKEN


def job_terms(**changes: object) -> m.JobTerms:
    terms = m.JobTerms(
        manifest=b"manifest",
        data_root=sha256(b"data"),
        data_size=1000,
        genesis_root=GENESIS_ROOT,
        num_rounds=3,
        min_workers=2,
        max_workers=4,
        reward_per_round=REWARD,
        max_samples=1000,
        train_blocks=5,
        commit_blocks=3,
        reveal_blocks=4,
        score_blocks=3,
        aggregate_blocks=4,
        scorers=(),
    )
    return replace(terms, **changes)


def create_job(chain: Chain, *, owner: str = "alice", key_text: str = "job", **changes: object) -> None:
    chain.ok(owner, m.CreateJob(key=sha256(key_text.encode()), terms=job_terms(**changes)))


def join(chain: Chain, *names: str, job_id: int = 1) -> None:
    """Register as workers where needed and join, all in one block, so that the round opens with all of them."""
    join_job = m.JoinJob(job_id=job_id, genesis_root=GENESIS_ROOT)
    register = m.RegisterWorker(bond=10 * TOKEN)
    receipts = chain.block(*[chain.tx(name, register, join_job) for name in names])
    assert [receipt.code for receipt in receipts] == [0] * len(names), receipts


def started(*workers: str, chain: Chain | None = None, **changes: object) -> Chain:
    """A chain whose job 1 has these workers and an open round 0."""
    chain = chain or Chain()
    create_job(chain, **changes)
    join(chain, *workers)
    assert chain.job().open_round == 0
    return chain


# --- blobs --------------------------------------------------------------------------------------------------------
def header_for(content: str, service_set: ServiceSet, *, size: int = 1000) -> BlobHeader:
    k = data_rows_for(service_set.members)
    return BlobHeader(
        version=1,
        codec="isal",
        k=k,
        n=sum(row_counts(k, service_set.members)),
        size=size,
        row_size=row_size_for(size, k),
        rows_root=sha256(content.encode()),
    )


def promise_for(chain: Chain, publisher: str, content: str, namespace: str, *, expiry: int) -> BlobPromise:
    service_set = chain.service_set()
    return BlobPromise(
        chain_id=CHAIN_ID,
        header=header_for(content, service_set),
        namespace=namespace,
        expiry_height=expiry,
        set_version=service_set.version,
        publisher=address(publisher),
    )


def certify(promise: BlobPromise, attesters: Sequence[str] = VALIDATORS) -> m.PublishBlob:
    """The message with signatures of the attesters' service keys, sorted by operator."""
    digest = promise.attestation_digest
    entries = [Attestation(operator=address(v), signature=key(f"service:{v}").sign(digest)) for v in attesters]
    ordered = tuple(sorted(entries, key=lambda entry: entry.operator))
    return m.PublishBlob(certificate=Certificate(promise=promise, attestations=ordered))


# --- one worker's messages ----------------------------------------------------------------------------------------
def content_of(worker: str, index: int) -> str:
    return f"update of {worker} in round {index}"


def blob_of(chain: Chain, worker: str, index: int) -> bytes:
    return header_for(content_of(worker, index), chain.service_set()).commitment


def commit(chain: Chain, worker: str, index: int = 0, *, job_id: int = 1) -> m.CommitUpdate:
    commitment = update_commitment(
        CHAIN_ID, job_id, index, address(worker), blob_of(chain, worker, index), SALT, 10, 2_000_000
    )
    return m.CommitUpdate(job_id=job_id, round_index=index, commitment=commitment)


def reveal(chain: Chain, worker: str, index: int = 0, *, job_id: int = 1) -> m.RevealUpdate:
    return m.RevealUpdate(
        job_id=job_id,
        round_index=index,
        base_round=chain.round(index, job_id).base_round,
        blob=blob_of(chain, worker, index),
        salt=SALT,
        samples=10,
        loss_micro=2_000_000,
    )


def publish(chain: Chain, worker: str, index: int = 0, *, job_id: int = 1, expiry: int = 0) -> m.PublishBlob:
    lowest = needed_expiry(chain.job(job_id), chain.round(index, job_id))
    namespace = round_namespace(job_id, index)
    return certify(promise_for(chain, worker, content_of(worker, index), namespace, expiry=expiry or lowest))


def attest(index: int = 0, *, root: bytes = ROOT, rejected: Sequence[str] = (), job_id: int = 1) -> m.AttestState:
    addresses = tuple(sorted(address(name) for name in rejected))
    return m.AttestState(job_id=job_id, round_index=index, state_root=root, rejected=addresses)


def score(index: int = 0, *, job_id: int = 1, **scores: int) -> m.ScoreUpdates:
    entries = tuple(sorted((address(name), value) for name, value in scores.items()))
    return m.ScoreUpdates(job_id=job_id, round_index=index, scores=entries)


# --- whole phases -------------------------------------------------------------------------------------------------
def all_ok(chain: Chain, *txs: bytes) -> None:
    for receipt in chain.block(*txs):
        assert receipt.code == 0, receipt.log


def commit_all(chain: Chain, *workers: str, index: int = 0) -> None:
    all_ok(chain, *[chain.tx(w, commit(chain, w, index)) for w in workers])


def reveal_all(chain: Chain, *workers: str, index: int = 0) -> None:
    all_ok(chain, *[chain.tx(w, publish(chain, w, index), reveal(chain, w, index)) for w in workers])


def pass_deadline(chain: Chain, index: int = 0) -> None:
    """Empty blocks until the end of block has acted on the deadline of the phase."""
    chain.skip_to(chain.round(index).deadline + 1)


def at_aggregate(*workers: str, **changes: object) -> Chain:
    """A chain whose round 0 is in phase aggregate with all workers included."""
    chain = started(*workers, **changes)
    commit_all(chain, *workers)
    reveal_all(chain, *workers)
    assert chain.round(0).phase == "aggregate"
    return chain
