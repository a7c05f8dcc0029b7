"""docs/protocol.md says what the code does: messages, fields, work, errors, tables."""

import inspect
import re
from pathlib import Path

import msgspec
import pytest

import primitives.blobs
from abci_app import errors, tables
from abci_app import messages as m
from abci_app.forms import FORMS
from abci_app.params import Params
from abci_app.rules.handlers import HANDLERS
from abci_app.work import WORK

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
MESSAGES: list[type[msgspec.Struct]] = list(m.Message.__args__)
REASONS = {
    name: cls
    for name, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, errors.InvalidTransaction) and cls is not errors.InvalidTransaction
}


def tag(message: type[msgspec.Struct]) -> str:
    return str(message.__struct_config__.tag)


def section(title: str) -> str:
    """The text under a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no section {title}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def named_errors(text: str) -> set[str]:
    return set(re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b|\bExpired\b", text)) & REASONS.keys()


@pytest.mark.parametrize("message", MESSAGES, ids=tag)
def test_message_has_handler_form_work_and_section(message: type[msgspec.Struct]) -> None:
    assert message in HANDLERS
    assert message in FORMS
    assert f"Work: {WORK[message]}" in section(f"`{tag(message)}`")


@pytest.mark.parametrize("message", MESSAGES, ids=tag)
def test_section_lists_just_the_fields_in_their_order(message: type[msgspec.Struct]) -> None:
    listed = [row[0].strip("` ") for row in rows(section(f"`{tag(message)}`")) if row[0].strip()]
    wanted = list(message.__struct_fields__)
    if message is m.CreateJob:
        wanted += [f"terms.{name}" for name in m.JobTerms.__struct_fields__]
    assert listed == wanted


@pytest.mark.parametrize("message", MESSAGES, ids=tag)
def test_section_lists_the_errors_that_the_handler_raises(message: type[msgspec.Struct]) -> None:
    doc = inspect.getdoc(HANDLERS[message]) or ""
    raised = named_errors(doc.partition("Raises:")[2])
    assert raised, "every handler says what it raises"
    assert named_errors(section(f"`{tag(message)}`").partition("Errors:")[2]) == raised


def test_no_handler_form_or_price_is_left_over() -> None:
    assert set(HANDLERS) == set(FORMS) == set(WORK) == set(MESSAGES)


def test_every_error_has_its_own_code_and_a_row() -> None:
    codes = [cls.code for cls in REASONS.values()]
    assert len(set(codes)) == len(codes)
    listed = {row[1]: int(row[0]) for row in rows(section("Error codes"))}
    assert listed == {name: cls.code for name, cls in REASONS.items()}


def test_every_table_has_a_row_with_its_fields() -> None:
    listed = {row[0].strip("`"): row[-1] for row in rows(section("State"))}
    assert listed.keys() == tables.TABLES.keys()
    for name, table in tables.TABLES.items():
        if table.record is not tables.Marker and name != "params":
            assert listed[name] == ", ".join(table.record.__struct_fields__), name


def test_every_parameter_has_a_row_with_its_default() -> None:
    listed = {row[0].strip("`"): int(row[1]) for row in rows(section("Parameters"))}
    assert listed == {name: getattr(Params(), name) for name in Params.__struct_fields__}


def test_certificate_fields_are_listed_in_their_order() -> None:
    text = " ".join(section("Certificates").split())
    for struct in (primitives.blobs.BlobPromise, primitives.blobs.BlobHeader):
        assert f"[{', '.join(struct.__struct_fields__)}]" in text
    assert "`[promise, attestations]`" in section("`publish_blob`")
    assert primitives.blobs.Certificate.__struct_fields__ == ("promise", "attestations")


def test_keys_of_different_tables_never_share_a_prefix() -> None:
    prefixes = [table.prefix for table in tables.TABLES.values()]
    assert not [(a, b) for a in prefixes for b in prefixes if a != b and a.startswith(b)]
