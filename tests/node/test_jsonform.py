"""JSON form: every record and message goes there and back; everything else is refused with the field's path."""

import json
import types
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abci_app import records
from abci_app.messages import Message, Transfer
from abci_app.params import Params
from abci_app.tables import TABLES
from node.jsonform import JsonFormError, from_json, struct_hints, to_json
from node.rpc_types import Answer, Page
from primitives.blobs import Certificate
from primitives.keys import format_address


def values(wanted: Any) -> st.SearchStrategy[Any]:
    """Any value of a type, with byte strings of the lengths that matter."""
    origin, arguments = get_origin(wanted), get_args(wanted)
    if wanted is bytes:
        return st.one_of(*(st.binary(min_size=size, max_size=size) for size in (0, 19, 20, 21, 32, 64)))
    if wanted is int:
        return st.integers(-(2**63), 2**63 - 1)
    if wanted is str:
        return st.text(st.characters(exclude_categories=["Cs"]))
    if wanted is bool:
        return st.booleans()
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is types.UnionType:
        return st.one_of(*(values(option) for option in arguments))
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*(values(item) for item in arguments))
    if wanted is types.NoneType:
        return st.none()
    if wanted is Params:
        return st.builds(Params, gas_price_micro=st.integers(1, 2**63 - 1))
    return st.builds(wanted, **{name: values(hint) for name, hint in struct_hints(wanted).items()})


STRUCTS = sorted({table.record for table in TABLES.values()} | {Certificate}, key=lambda struct: struct.__name__)


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_record_comes_back_from_json(struct: type[msgspec.Struct]) -> None:
    @given(values(struct))
    def check(value: msgspec.Struct) -> None:
        assert from_json(json.loads(json.dumps(to_json(value))), struct) == value

    check()


@given(values(Message))
def test_every_message_comes_back_from_json(message: Message) -> None:
    assert from_json(json.loads(json.dumps(to_json(message))), Message) == message


@given(st.lists(values(records.Account), max_size=3))
def test_pages_and_answers_carry_their_record_type(accounts: list[records.Account]) -> None:
    page = Page(items=tuple(accounts), next="x", height=3)
    assert from_json(to_json(page), Page[records.Account]) == page
    answer = Answer(record=accounts[0] if accounts else None, height=3)
    assert from_json(to_json(answer), Answer[records.Account]) == answer


def test_addresses_are_told_from_other_bytes() -> None:
    form = to_json(Transfer(to=b"\x01" * 20, amount=5))
    assert form == {"type": "transfer", "to": format_address(b"\x01" * 20), "amount": 5}
    assert from_json({**form, "to": "0x" + "01" * 20}, Message) == Transfer(to=b"\x01" * 20, amount=5)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"amount": True}, "amount is True; it should be a whole number"),
        ({"amount": 1.0}, "amount is 1.0; it should be a whole number"),
        ({"amount": "5"}, "amount is '5'"),
        ({"amount": 2**64}, "amount does not fit 64 bits"),
        ({"amount": None}, "amount is None"),
        ({"to": "outer1qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq"}, r"^to: 'outer1q+' is not an address: the checksum"),
        ({"to": "zz"}, "to: 'zz' should be hex"),
        ({"to": "0 1"}, "to: '0 1' should be hex"),
        ({"to": "１２"}, "to: .* should be hex"),
        ({"to": ["01"]}, r"to is \['01'\]"),
        ({"extra": 1}, "extra is not a field of Transfer"),
        ({"type": "nonsense"}, "type is 'nonsense'; it should be one of activate_deal, "),
        ({"type": ["transfer"]}, "type is "),
    ],
)
def test_what_is_not_a_message_is_refused_by_name(change: dict[str, Any], complaint: str) -> None:
    form = to_json(Transfer(to=b"\x01" * 20, amount=5))
    with pytest.raises(JsonFormError, match=complaint):
        from_json({**form, **change}, Message)


def test_path_leads_to_the_field_deep_inside() -> None:
    form = to_json(records.Settlement(1, 2, 3, b"r" * 32, ((b"w" * 20, b"b" * 32),), (), 0))
    form["blobs"][0][1] = 7
    with pytest.raises(JsonFormError, match=r"^blobs\[0\]\[1\] is 7"):
        from_json(form, records.Settlement)
    form["blobs"] = [[]]
    with pytest.raises(JsonFormError, match=r"^blobs\[0\] is \[\]; it should be an array of 2"):
        from_json(form, records.Settlement)
    del form["blobs"]
    with pytest.raises(JsonFormError, match=r"^blobs is missing"):
        from_json(form, records.Settlement)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(json_values, st.sampled_from([*STRUCTS, Message, Page[records.Job]]))
def test_any_other_json_is_refused_and_never_crashes(data: Any, wanted: Any) -> None:
    try:
        value = from_json(data, wanted)
    except JsonFormError:
        return
    assert from_json(to_json(value), wanted) == value


@given(json_values, st.sampled_from(sorted(records.Job.__struct_fields__)))
def test_any_value_in_one_field_is_refused_or_kept(data: Any, field: str) -> None:
    good = to_json(JOB)
    problem = field
    job = JOB
    try:
        job = from_json({**good, field: data}, records.Job)
    except JsonFormError as error:
        problem = str(error)
    assert problem.startswith(field)
    assert from_json(to_json(job), records.Job) == job


JOB = from_json(
    {
        "id": 1,
        "owner": "01" * 20,
        "terms": {
            "manifest": "",
            "data_root": "02" * 32,
            "data_size": 1,
            "genesis_root": "03" * 32,
            "num_rounds": 1,
            "min_workers": 1,
            "max_workers": 2,
            "reward_per_round": 5,
            "max_samples": 10,
            "train_blocks": 1,
            "commit_blocks": 1,
            "reveal_blocks": 1,
            "score_blocks": 1,
            "aggregate_blocks": 1,
            "scorers": [],
        },
        "status": "open",
        "created_height": 1,
        "escrow": 5,
        "next_round": 0,
        "open_round": -1,
        "settled_rounds": 0,
        "settled_round": -1,
        "state_root": "03" * 32,
    },
    records.Job,
)
