"""Form checks: the good form of every message passes; each field out of its form is refused by name."""

from typing import Any

import pytest
from msgspec.structs import replace

from abci_app import messages as m
from abci_app.errors import MalformedMessage
from abci_app.forms import FORMS, check_form, check_url
from primitives.blobs import Attestation, BlobHeader, BlobPromise, Certificate
from tests.abci_app.rules.rounds_kit import job_terms

A, B, C = b"a" * 20, b"b" * 20, b"c" * 20
H = b"h" * 32
S = b"s" * 64
TOP = 2**63 - 1
HEADER = BlobHeader(version=1, codec="isal", k=32, n=96, size=1000, row_size=64, rows_root=H)
PROMISE = BlobPromise(chain_id="c", header=HEADER, namespace="a/b", expiry_height=9, set_version=1, publisher=A)
CERTIFICATE = Certificate(promise=PROMISE, attestations=(Attestation(A, S), Attestation(B, S)))

GOOD: list[m.Message] = [
    m.Transfer(to=A, amount=1),
    m.RegisterValidator(consensus_key=H, possession_proof=S, bond=1),
    m.Bond(amount=TOP),
    m.Unbond(amount=1),
    m.RegisterService(service_key=H, possession_proof=S, url="http://127.0.0.1:26602"),
    m.RegisterWorker(bond=1),
    m.RetireWorker(),
    m.CreateJob(key=H, terms=job_terms(scorers=(A, B))),
    m.CancelJob(job_id=1),
    m.JoinJob(job_id=TOP, genesis_root=H),
    m.LeaveJob(job_id=1),
    m.CommitUpdate(job_id=1, round_index=0, commitment=H),
    m.RevealUpdate(job_id=1, round_index=0, base_round=-1, blob=H, salt=H, samples=1, loss_micro=0),
    m.ScoreUpdates(job_id=1, round_index=0, scores=((A, -5), (B, 5))),
    m.AttestState(job_id=1, round_index=0, state_root=H, rejected=(A, B)),
    m.PublishBlob(certificate=CERTIFICATE),
    m.CreateDeal(key=H, root=H, size=0, tier="hot", replicas=1, duration=1, series=""),
    m.ActivateDeal(deal_id=1, receipts=((A, S), (B, S))),
    m.ExtendDeal(deal_id=1, blocks=1),
    m.DeleteDeal(deal_id=1),
]
BY_TYPE: dict[type[m.Message], Any] = {type(message): message for message in GOOD}
NOT_INTEGERS: list[Any] = [True, 1.0, "1", None]
NOT_IDS: list[Any] = [0, -1, TOP + 1, *NOT_INTEGERS]
NOT_HASHES = [b"", b"x" * 31, b"x" * 33, "x" * 32, None]
NOT_ADDRESSES = [b"", b"x" * 19, b"x" * 21]

BAD: list[tuple[type[m.Message], str, list[Any]]] = [
    (m.Transfer, "to", NOT_ADDRESSES),
    (m.Transfer, "amount", NOT_IDS),
    (m.RegisterValidator, "consensus_key", NOT_HASHES),
    (m.RegisterValidator, "possession_proof", [b"", b"x" * 63, b"x" * 65]),
    (m.RegisterValidator, "bond", NOT_IDS),
    (m.Bond, "amount", NOT_IDS),
    (m.Unbond, "amount", NOT_IDS),
    (m.RegisterService, "service_key", NOT_HASHES),
    (m.RegisterService, "possession_proof", [b"", b"x" * 63, b"x" * 65]),
    (m.RegisterWorker, "bond", NOT_IDS),
    (m.CreateJob, "key", NOT_HASHES),
    (m.CancelJob, "job_id", NOT_IDS),
    (m.JoinJob, "job_id", NOT_IDS),
    (m.JoinJob, "genesis_root", NOT_HASHES),
    (m.LeaveJob, "job_id", NOT_IDS),
    (m.CommitUpdate, "job_id", NOT_IDS),
    (m.CommitUpdate, "round_index", [-1, TOP + 1, *NOT_INTEGERS]),
    (m.CommitUpdate, "commitment", NOT_HASHES),
    (m.RevealUpdate, "job_id", NOT_IDS),
    (m.RevealUpdate, "round_index", [-1, TOP + 1, *NOT_INTEGERS]),
    (m.RevealUpdate, "base_round", [-2, TOP + 1, *NOT_INTEGERS]),
    (m.RevealUpdate, "blob", NOT_HASHES),
    (m.RevealUpdate, "salt", NOT_HASHES),
    (m.RevealUpdate, "samples", [0, -1, 2**40 + 1, *NOT_INTEGERS]),
    (m.RevealUpdate, "loss_micro", [-1, 10**12 + 1, *NOT_INTEGERS]),
    (m.ScoreUpdates, "job_id", NOT_IDS),
    (m.ScoreUpdates, "round_index", [-1, TOP + 1, *NOT_INTEGERS]),
    (
        m.ScoreUpdates,
        "scores",
        [
            ((B, 1), (A, 1)),
            ((A, 1), (A, 1)),
            ((b"x", 1),),
            ((A, 10**12 + 1),),
            ((A, -(10**12) - 1),),
            ((A, True),),
            tuple((i.to_bytes(20, "big"), 0) for i in range(129)),
        ],
    ),
    (m.AttestState, "job_id", NOT_IDS),
    (m.AttestState, "state_root", NOT_HASHES),
    (m.AttestState, "rejected", [(B, A), (A, A), (b"x",), tuple(i.to_bytes(20, "big") for i in range(129))]),
    (m.CreateDeal, "key", NOT_HASHES),
    (m.CreateDeal, "root", NOT_HASHES),
    (m.CreateDeal, "size", [-1, TOP + 1, *NOT_INTEGERS]),
    (m.CreateDeal, "replicas", [0, -1, 256, *NOT_INTEGERS]),
    (m.CreateDeal, "duration", NOT_IDS),
    (m.CreateDeal, "series", ["A", "a b", "a\n", "ä", "a" * 65, "a.b"]),
    (m.ActivateDeal, "deal_id", NOT_IDS),
    (m.ActivateDeal, "receipts", [((B, S), (A, S)), ((A, S), (A, S)), ((A, b"x"),), ((b"x", S),)]),
    (m.ExtendDeal, "deal_id", NOT_IDS),
    (m.ExtendDeal, "blocks", NOT_IDS),
    (m.DeleteDeal, "deal_id", NOT_IDS),
]

BAD_TERMS: list[tuple[str, list[Any]]] = [
    ("manifest", [b"", b"x" * 8193]),
    ("data_root", NOT_HASHES),
    ("data_size", [-1, TOP + 1, *NOT_INTEGERS]),
    ("genesis_root", NOT_HASHES),
    ("num_rounds", [0, -1, 10**6 + 1, *NOT_INTEGERS]),
    ("min_workers", [0, -1, 5, *NOT_INTEGERS]),
    ("max_workers", [0, 1, 129, *NOT_INTEGERS]),
    ("reward_per_round", NOT_IDS),
    ("max_samples", [0, -1, 2**40 + 1, *NOT_INTEGERS]),
    ("train_blocks", [0, -1, 10**6 + 1, *NOT_INTEGERS]),
    ("commit_blocks", [0, -1, 10**6 + 1, *NOT_INTEGERS]),
    ("reveal_blocks", [0, -1, 10**6 + 1, *NOT_INTEGERS]),
    ("score_blocks", [-1, 10**6 + 1, *NOT_INTEGERS]),
    ("aggregate_blocks", [0, -1, 10**6 + 1, *NOT_INTEGERS]),
    ("scorers", [(B, A), (A, A), (b"x",), tuple(i.to_bytes(20, "big") for i in range(65))]),
]


def cases(bad: list[tuple[Any, ...]]) -> list[Any]:
    return [
        pytest.param(*row[:-1], value, id=f"{getattr(row[0], '__name__', row[0])}.{row[-2]}-{index}")
        for row in bad
        for index, value in enumerate(row[-1])
    ]


@pytest.mark.parametrize("message", GOOD, ids=lambda message: type(message).__name__)
def test_good_form_passes(message: m.Message) -> None:
    check_form(message)


def test_every_type_of_message_is_among_the_examples() -> None:
    assert set(BY_TYPE) == set(FORMS)


@pytest.mark.parametrize(("kind", "field", "value"), cases(BAD))
def test_field_out_of_form_is_refused_by_name(kind: type[m.Message], field: str, value: object) -> None:
    with pytest.raises(MalformedMessage, match=field):
        check_form(replace(BY_TYPE[kind], **{field: value}))


@pytest.mark.parametrize(("field", "value"), cases(BAD_TERMS))
def test_job_term_out_of_form_is_refused(field: str, value: object) -> None:
    with pytest.raises(MalformedMessage):
        check_form(m.CreateJob(key=H, terms=job_terms(**{field: value})))


@pytest.mark.parametrize(("scorers", "score_blocks", "ok"), [((), 0, True), ((A,), 0, False), ((A,), 1, True)])
def test_job_with_scorers_needs_time_for_them(scorers: tuple[bytes, ...], score_blocks: int, ok: bool) -> None:
    message = m.CreateJob(key=H, terms=job_terms(scorers=scorers, score_blocks=score_blocks))
    if ok:
        check_form(message)
    else:
        with pytest.raises(MalformedMessage, match="score_blocks"):
            check_form(message)


@pytest.mark.parametrize("field", ["train_blocks", "commit_blocks", "reveal_blocks", "aggregate_blocks", "num_rounds"])
def test_largest_terms_pass(field: str) -> None:
    check_form(m.CreateJob(key=H, terms=job_terms(**{field: 10**6})))


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:26602", "https://node.example.org:1", "http://[::1]:65535", "http://my-host:80"],
)
def test_service_addresses_that_pass(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:26602",
        "ftp://host:1",
        "http://host",
        "http://host:0",
        "http://host:65536",
        "http://host:99999",
        "http://host:80/",
        "http://host:80/path",
        "http://host:80?x",
        "http://user@host:80",
        "http://:80",
        "http://ho st:80",
        "http://host:80\n",
        "http://host:٣",
        "HTTP://host:80",
        "http://" + "a" * 120 + ":80",
    ],
)
def test_service_addresses_that_are_refused(url: str) -> None:
    with pytest.raises(MalformedMessage, match="url"):
        check_url(url)
