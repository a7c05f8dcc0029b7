"""The order of ABCI calls: what the specification allows is taken, everything else is refused with the last calls."""

import itertools
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abci_app.__main__ import ASSERT_ORDER_VARIABLE
from abci_app.server import abci_pb2 as pb
from abci_app.server.frames import frame
from abci_app.server.grammar import CALLS_SHOWN, CallGrammar, IllegalCall
from tests.abci_app.kit import AppProcess, block, init_chain
from tests.abci_app.server.client import AbciClient

LETTERS: Final = {
    "i": "info",
    "g": "init_chain",
    "o": "offer_snapshot",
    "a": "apply_snapshot_chunk",
    "p": "prepare_proposal",
    "r": "process_proposal",
    "e": "extend_vote",
    "v": "verify_vote_extension",
    "F": "finalize_block",
    "C": "commit",
}
_EXTEND = "v*ev*"
_ROUND = f"(?:v*(?:pr?)?(?:{_EXTEND})?|v*r?(?:{_EXTEND})?)"
_HEIGHT = "(?:[prev]*FC)"
_SYNC = "(?:oa*)*oa+i"
ABNF: Final = re.compile(f"(?:(?:i?g(?:{_SYNC})?|{_SYNC})|ig?){_HEIGHT}+")
"""The specification's grammar over letters, where any word of round calls is a sequence of rounds (see below)."""
ENDINGS: Final = ("", "C", "FC", "iFC", "aiFC", "oaiFC", "gFC")
"""Every beginning of a legal sequence becomes a whole one by one of these."""


def run(word: str, grammar: CallGrammar | None = None) -> None:
    """Call what the letters say, at heights that fit. Raises: IllegalCall."""
    grammar = grammar or CallGrammar()
    height = 1
    for letter in word:
        grammar.check(LETTERS[letter], request(letter, height))
        height += letter == "C"


def request(letter: str, height: int) -> Any:
    if letter == "g":
        return pb.RequestInitChain(initial_height=1)
    if letter == "o":
        return pb.RequestOfferSnapshot(snapshot=pb.Snapshot(height=height - 1))
    return pb.RequestFinalizeBlock(height=height)


def is_beginning(word: str) -> bool:
    """Whether the specification has a sequence that begins with `word`, an Info of the RPC being possible anywhere."""
    return any(ABNF.fullmatch(kept + ending) for kept in without_some_infos(word) for ending in ENDINGS)


def without_some_infos(word: str) -> Iterator[str]:
    for drops in itertools.product(*[("", letter) if letter == "i" else (letter,) for letter in word]):
        yield "".join(drops)


@pytest.mark.parametrize("length", range(6))
def test_any_word_of_round_calls_is_a_sequence_of_rounds(length: int) -> None:
    """So the grammar of a height is `[prev]*FC`, which the next test and the server rely on."""
    rounds = re.compile(f"(?:{_ROUND})*")
    assert all(rounds.fullmatch("".join(word)) for word in itertools.product("prev", repeat=length))


@pytest.mark.parametrize("length", range(6))
def test_the_server_takes_exactly_what_the_specification_allows(length: int) -> None:
    """Every sequence of up to five calls; the round calls are one class, held by the test above."""
    for word in map("".join, itertools.product("igoarFC", repeat=length)):
        try:
            run(word)
            taken = True
        except IllegalCall:
            taken = False
        assert taken == is_beginning(word), word


# The examples of the specification's text and of its example scenarios, several heights long.
@pytest.mark.parametrize(
    "word",
    [
        "igFC" + "prevvFC" * 3,
        "igrvvveFC",
        "igvprevFC" + "FC" * 5 + "rFC",
        "ig" + "rvpvrevprrFC",
        "oaaaiFCFCrFC",
        "ooaaoaiFC",
        "goaiFC",
        "iFCFCprFC",
        "iigiFiCiFC",
    ],
)
def test_examples_of_the_specification_are_taken(word: str) -> None:
    run(word)


WORDS = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["ig", "g", "i", "goai", "oaai", "ooaoai"]),
        st.lists(st.builds("{}FC".format, st.text("prev", max_size=5)), min_size=1, max_size=6).map("".join),
    ),
)


def spoilt(word: str, chance: st.DataObject) -> str:
    """`word` made illegal in one of the ways that engines or relays could."""
    finalized = [i for i, letter in enumerate(word) if letter == "F"]
    at = chance.draw(st.sampled_from(finalized))
    ways = {
        "commit lost": word[: at + 1] + word[at + 2 :] + "F",
        "commit twice": word[: at + 2] + "C" + word[at + 2 :],
        "finalize lost": word[:at] + word[at + 1 :],
        "finalize twice": word[:at] + "F" + word[at:],
        "round call before commit": word[: at + 1] + chance.draw(st.sampled_from("prev")) + word[at + 1 :],
        "genesis again": word[: at + 2] + "g" + word[at + 2 :],
        "snapshot after a block": word[: at + 2] + chance.draw(st.sampled_from("oa")) + word[at + 2 :],
        "chunk without an offer": "a" + word,
        "no beginning": word.lstrip("igoa"),
    }
    return ways[chance.draw(st.sampled_from(sorted(ways)))]


@given(WORDS, st.data())
def test_long_legal_sequences_are_taken_and_spoilt_ones_refused(word: str, chance: st.DataObject) -> None:
    run(word)
    with pytest.raises(IllegalCall, match="illegal order of ABCI calls"):
        run(spoilt(word, chance))


@pytest.mark.parametrize(
    ("calls", "fault"),
    [
        ("F5 C F7", "finalize_block names height 7; it should be 6"),
        ("F5 C F5", "finalize_block names height 5; it should be 6"),
        ("p5 F6", "finalize_block names height 6; it should be 5"),
        ("r5 p4", "prepare_proposal names height 4; it should be 5"),
    ],
)
def test_heights_follow_one_another(calls: str, fault: str) -> None:
    grammar = CallGrammar()
    grammar.check("info", pb.RequestInfo())
    *legal, illegal = [(LETTERS[call[0]], request(call[0], int(call[1:] or 0))) for call in calls.split()]
    for call in legal:
        grammar.check(*call)
    with pytest.raises(IllegalCall, match=fault):
        grammar.check(*illegal)


def test_heights_begin_where_genesis_or_snapshot_says() -> None:
    for first in ("init_chain", pb.RequestInitChain(initial_height=9)), ("offer_snapshot", request("o", 9)):
        grammar = CallGrammar()
        grammar.check(*first)
        if first[0] == "offer_snapshot":
            grammar.check("apply_snapshot_chunk", pb.RequestApplySnapshotChunk())
            grammar.check("info", pb.RequestInfo())
        with pytest.raises(IllegalCall, match="names height 1; it should be 9"):
            grammar.check("finalize_block", pb.RequestFinalizeBlock(height=1))


def test_calls_outside_the_grammar_may_come_at_any_time() -> None:
    grammar = CallGrammar()
    for letter in "igFC":
        for method in ("echo", "flush", "check_tx", "query", "list_snapshots", "load_snapshot_chunk"):
            grammar.check(method, None)
        grammar.check(LETTERS[letter], request(letter, 1))


def test_an_engine_that_starts_again_begins_at_the_start() -> None:
    grammar = CallGrammar()
    run("igFCF", grammar)
    grammar.forget()
    with pytest.raises(IllegalCall, match=r"nothing was called yet.*commit, finalize_block 2, \(the engine left"):
        run("F", grammar)
    grammar.forget()
    run("iFC", grammar)


def test_the_report_shows_the_last_calls_and_not_more(tmp_path: Path) -> None:
    report = tmp_path / "report"
    grammar = CallGrammar(report)
    run("ig" + "FC" * 100, grammar)
    with pytest.raises(IllegalCall) as caught:
        grammar.check("commit", pb.RequestCommit())
    shown = str(caught.value).split("The last calls: ")[1].split(", ")
    assert len(shown) == CALLS_SHOWN
    assert shown[-3:] == ["finalize_block 100", "commit", "commit"]
    assert report.read_text() == f"{caught.value}\n"


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AppProcess]:
    """Told to assert by its option, and not to report to the tests."""
    app = AppProcess(tmp_path, ("--assert-call-order",), environment={ASSERT_ORDER_VARIABLE: ""})
    await app.start()
    yield app
    await app.kill()


async def test_the_process_stops_at_an_illegal_call_and_says_which(app: AppProcess) -> None:
    async with await AbciClient.connect(app.socket) as client:
        await client.call(init_chain=init_chain())
        await client.call(finalize_block=block(1))
        await client.send(pb.Request(finalize_block=block(1)))
        status, errors = await app.ended()
    assert status == 1
    assert "illegal order of ABCI calls: finalize_block cannot come when a block was finalized" in errors
    assert "The last calls: init_chain, finalize_block 1, finalize_block 1" in errors
    assert "Traceback" not in errors


async def test_calls_of_several_connections_are_one_sequence_and_a_new_engine_starts_anew(app: AppProcess) -> None:
    async with await AbciClient.connect(app.socket) as query, await AbciClient.connect(app.socket) as consensus:
        await query.call(info=pb.RequestInfo())
        await consensus.call(init_chain=init_chain())
        await consensus.call(finalize_block=block(1))
        await query.call(info=pb.RequestInfo())
    async with await AbciClient.connect(app.socket) as client:
        assert (await client.call(info=pb.RequestInfo())).last_block_height == 0
        await client.call(init_chain=init_chain())
        await client.call(finalize_block=block(1))
        await client.call(commit=pb.RequestCommit())


@pytest.mark.parametrize("number", [21, 22])
async def test_requests_of_an_application_mempool_end_the_connection_with_the_reason(
    app: AppProcess, number: int
) -> None:
    """insert_tx and reap_txs, which CometBFT 0.39 and later send when `mempool.type` is "app"."""
    async with await AbciClient.connect(app.socket) as client:
        await client.send_bytes(frame(bytes([number << 3 & 0x7F | 0x82, 1, 0])))
        answer = await client.receive()
        assert 'mempool type "app"' in answer.exception.error
        with pytest.raises(EOFError):
            await client.receive()
    async with await AbciClient.connect(app.socket) as client:
        assert (await client.call(echo=pb.RequestEcho(message="still here"))).message == "still here"
