"""Genesis: what is accepted, and that each mistake is named."""

from typing import Any

import msgspec
import pytest

from abci_app.params import Genesis, GenesisError, Params, parse_genesis
from primitives.keys import format_address
from tests.abci_app.rules.chain import PEOPLE, VALIDATORS, address, make_genesis


def as_json(genesis: Genesis | None = None) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(genesis or make_genesis()))
    return document


def parse(document: object) -> Genesis:
    return parse_genesis(msgspec.json.encode(document))


def test_genesis_survives_writing_and_reading() -> None:
    assert parse(as_json()) == make_genesis()


def test_parameters_have_defaults() -> None:
    document = as_json()
    del document["params"]
    assert parse(document).params == Params()


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"\xff", b'{"accounts": 3}', b"1" * 5000])
def test_text_that_is_no_genesis_is_refused(text: bytes) -> None:
    with pytest.raises(GenesisError):
        parse_genesis(text)


def change(path: list[Any], value: object) -> dict[str, Any]:
    document = as_json()
    place: Any = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return document


FIRST = ["validators", 0]
BAD: list[tuple[str, list[Any], object, str]] = [
    ("unknown field", ["extra"], 1, "extra"),
    ("unknown parameter", ["params", "gas_prize"], 1, "gas_prize"),
    ("parameter zero", ["params", "unbonding_blocks"], 0, "unbonding_blocks"),
    ("parameter negative", ["params", "gas_price_micro"], -1, "gas_price_micro"),
    ("parameter a float", ["params", "gas_price_micro"], 1.5, "gas_price_micro"),
    ("parameter a bool", ["params", "gas_price_micro"], True, "gas_price_micro"),
    ("share above one", ["params", "slash_double_sign_ppm"], 1_000_001, "slash_double_sign_ppm"),
    ("quorum of one half", ["params", "attest_quorum_ppm"], 500_000, "attest_quorum_ppm"),
    ("bond without power", ["params", "min_validator_bond"], 999_999, "min_validator_bond"),
    ("too many validators allowed", ["params", "max_validators"], 201, "max_validators"),
    ("more validators than allowed", ["params", "max_validators"], 3, "max_validators"),
    ("balance negative", ["accounts", 0, "balance"], -1, "balance"),
    ("balance a float", ["accounts", 0, "balance"], 1.5, "balance"),
    ("address of no account", ["accounts", 0, "address"], "outer1xyz", "not an address"),
    ("account twice", ["accounts", 0, "address"], format_address(address(PEOPLE[1])), "accounts"),
    ("no validators", ["validators"], [], "validators"),
    ("operator twice", [*FIRST, "operator"], format_address(address(VALIDATORS[1])), "operator"),
    ("bond below the minimum", [*FIRST, "bond"], 9_999_999, "min_validator_bond"),
    ("bond a bool", [*FIRST, "bond"], True, "bond"),
    ("consensus key too short", [*FIRST, "consensus_key"], "11" * 31, "consensus_key"),
    ("consensus key no hex", [*FIRST, "consensus_key"], "zz" * 32, "hex"),
    ("service key too short", [*FIRST, "service_key"], "11", "service_key"),
    ("service key without address", [*FIRST, "url"], "", "service_key"),
    ("address without service key", [*FIRST, "service_key"], "", "service_key"),
    ("url with a path", [*FIRST, "url"], "http://host:80/path", "url"),
    ("supply above the limit", ["accounts", 0, "balance"], 2**63 - 1, "supply"),
]


@pytest.mark.parametrize(("path", "value", "named"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_mistake_is_refused_and_named(path: list[Any], value: object, named: str) -> None:
    with pytest.raises(GenesisError, match=named):
        parse(change(path, value))


@pytest.mark.parametrize("field", ["consensus_key", "service_key"])
def test_key_of_two_validators_is_refused(field: str) -> None:
    document = as_json()
    document["validators"][0][field] = document["validators"][1][field]
    with pytest.raises(GenesisError, match=field):
        parse(document)


def test_same_key_in_other_letters_is_the_same_key() -> None:
    document = as_json()
    document["validators"][0]["consensus_key"] = document["validators"][1]["consensus_key"].upper()
    with pytest.raises(GenesisError, match="consensus_key"):
        parse(document)
