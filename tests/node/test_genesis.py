"""One genesis for all nodes: CometBFT's part and the application's agree; everything wrong is refused by name."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from abci_app.params import Params, parse_genesis
from abci_app.transactions import possession_digest
from node import genesis as genesis_module
from node.config import ports_from
from node.engine_files import GENESIS_NAME, consensus_key, prove_possession
from node.errors import SetupError
from node.genesis import check_genesis, install_genesis, make_genesis
from node.init import init_node
from tests.node.conftest import ALICE, CHAIN_ID, Made


def changed(document: bytes, path: list[Any], value: Any) -> bytes:
    parsed = json.loads(document)
    target = parsed
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return json.dumps(parsed).encode()


def test_both_parts_name_the_same_validators(tmp_path: Path) -> None:
    nodes = [init_node(tmp_path / str(i), network=ports_from(40000 + 10 * i)) for i in range(4)]
    document = json.loads(make_genesis(nodes, {ALICE.address: 5}, chain_id=CHAIN_ID, bond=20_500_000))
    genesis = parse_genesis(json.dumps(document["app_state"]).encode())
    keys = {base64.b64decode(v["pub_key"]["value"]).hex(): v["power"] for v in document["validators"]}
    assert keys == {v.consensus_key: "20" for v in genesis.validators}
    assert {v.url for v in genesis.validators} == {node.url for node in nodes}


def test_evidence_does_not_outlast_the_stake_that_answers_for_it(tmp_path: Path) -> None:
    node = init_node(tmp_path / "a")
    document = json.loads(make_genesis([node], {}, Params(unbonding_blocks=37), chain_id=CHAIN_ID))
    assert document["consensus_params"]["evidence"]["max_age_num_blocks"] == "37"


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        (["app_state", "accounts", 0, "balance"], -1, "balance of outer1"),
        (["app_state", "accounts", 0, "address"], "outer1xyz", "checksum"),
        (["app_state", "validators"], [], "validators has 0 entries"),
        (["app_state", "params", "gas_price_micro"], 0, "gas_price_micro"),
        (["app_state", "surprise"], 1, "surprise"),
        (["validators", 0, "power"], "1", "differ in keys or powers"),
        (["validators"], [], "differ in keys or powers"),
        (["validators"], 5, "not a genesis"),
        (["consensus_params", "evidence", "max_age_num_blocks"], "1999", "should be at least unbonding_blocks"),
        (["consensus_params", "evidence"], {}, "not a genesis"),
        (["chain_id"], None, "chain id None"),
        (["chain_id"], "a b", "chain id 'a b'"),
    ],
)
def test_wrong_document_is_refused(made: Made, path: list[Any], value: Any, complaint: str) -> None:
    with pytest.raises(SetupError, match=complaint):
        check_genesis(changed(made.genesis, path, value))


@pytest.mark.parametrize("document", [b"", b"{", b"[]", b"\xff", b"5", b"[" * 50_000])
def test_garbage_is_refused(document: bytes) -> None:
    with pytest.raises(SetupError):
        check_genesis(document)


def test_document_too_large_for_one_message_is_refused(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS C8."""
    monkeypatch.setattr(genesis_module, "MAX_GENESIS_BYTES", 100)
    with pytest.raises(SetupError, match="at most 100 are allowed"):
        check_genesis(made.genesis)


@pytest.mark.parametrize("chain_id", ["", "x" * 51, "a b", "é"])
def test_bad_chain_id_is_refused(made: Made, chain_id: str) -> None:
    with pytest.raises(SetupError, match="chain id"):
        make_genesis([made.identity], {}, chain_id=chain_id)


def test_node_belongs_to_one_network_for_good(made: Made) -> None:
    install_genesis(made.home, made.genesis)
    other = make_genesis([made.identity], {}, chain_id="other-1")
    with pytest.raises(SetupError, match="another genesis"):
        install_genesis(made.home, other)
    assert (made.home / GENESIS_NAME).read_bytes() == made.genesis


def test_possession_of_the_consensus_key_can_be_shown(made: Made) -> None:
    signature = prove_possession(made.home, CHAIN_ID, made.identity.operator)
    digest = possession_digest(CHAIN_ID, made.identity.operator)
    Ed25519PublicKey.from_public_bytes(consensus_key(made.home)).verify(signature, digest)
