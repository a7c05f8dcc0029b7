"""The command line as a person meets it: help, refusals, exit codes, key files, JSON."""

import json
import os
import stat
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner, Result

from node.cli.output import run
from outerstep.cli import app
from primitives.keys import PrivateKey, format_address

ADDRESS = format_address(PrivateKey.from_seed("somebody").address)
NOBODY = "http://127.0.0.1:1"
HEAVY = ("torch", "numpy", "aiohttp", "plyvel", "coincurve", "rich", "localnet.cli")
GROUPS = ("node", "keys", "query", "tx", "job", "worker", "scorer", "da", "storage", "localnet")


def outerstep(*arguments: str | Path, **environment: str) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env=environment)


def one_line(result: Result) -> str:
    """The only line on standard error."""
    (line,) = result.stderr.strip().splitlines()
    return line


@pytest.mark.parametrize("group", GROUPS)
def test_every_group_explains_itself(group: str) -> None:
    assert outerstep(group, "--help").exit_code == 0
    assert outerstep(group, "-h").exit_code == 0


def test_help_names_every_group() -> None:
    result = outerstep("--help")
    assert result.exit_code == 0
    assert all(f"  {group}" in result.stdout for group in GROUPS)


def test_version_is_that_of_the_package() -> None:
    result = outerstep("--version")
    assert (result.exit_code, result.stdout) == (0, f"outerstep {version('outerstep')}\n")


@pytest.mark.parametrize("command", [["--help"], ["tx", "transfer", "--help"], ["keys", "new", "--help"]])
def test_help_imports_nothing_heavy(command: list[str]) -> None:
    """What makes the command line slow is only imported where it is used."""
    script = (
        "import sys\n"
        "from outerstep.cli import app\n"
        f"app({command!r}, standalone_mode=False)\n"
        f"print([name for name in {HEAVY} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "about"),
    [
        (["tx", "transfer", ADDRESS, "0"], "1 to"),
        (["tx", "transfer", ADDRESS, "1.2345678"], "six decimals"),
        (["tx", "transfer", ADDRESS, "nan"], "not finite"),
        (["tx", "transfer", ADDRESS[:-1] + "b", "5"], "not an address"),
        (["query", "tx", "abc"], "not hex"),
        (["query", "tx", "ab"], "32"),
        (["query", "job", "0"], "JOB"),
        (["job", "create", "--set", "width"], "NAME=VALUE"),
        (["storage", "upload", "nothing", "--tier", "warm"], "hot or temporary"),
        (["storage", "upload", "text", "--duration", "9" * 30], "--duration"),
        (["da", "put", "text", "--lifetime", "9" * 30], "--lifetime"),
        (["da", "put", "text", "--namespace", "No Such"], "namespace"),
        (["worker", "run", "--job", "1"], "--home"),
        (["worker", "run", "--job", "1", "--home", "x", "--threads", "9" * 20], "--threads"),
        (["frobnicate"], "No such command"),
    ],
)
def test_a_wrong_use_exits_with_2_and_says_what_is_wrong(arguments: list[str], about: str) -> None:
    result = outerstep(*arguments)
    assert result.exit_code == 2, result.output
    assert about in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["query", "status"],
        ["query", "account", ADDRESS],
        ["query", "round", "1"],
        ["query", "settlements", "1"],
        ["job", "list"],
        ["job", "show", "1"],
        ["storage", "ls"],
        ["storage", "download", "1", "--out", "x"],
        ["da", "get", "00" * 32, "--out", "x"],
    ],
)
def test_a_node_that_does_not_answer_is_one_clear_line_and_exit_code_1(arguments: list[str]) -> None:
    result = outerstep(*arguments, OUTERSTEP_NODE=NOBODY)
    assert result.exit_code == 1
    assert one_line(result).startswith("error: no answer from http://127.0.0.1:1")
    assert "Is the node running" in result.stderr


def test_signing_without_a_key_says_how_to_name_one() -> None:
    result = outerstep("tx", "transfer", ADDRESS, "5", OUTERSTEP_NODE=NOBODY)
    assert result.exit_code == 1
    assert "--key FILE or OUTERSTEP_KEY" in one_line(result)


def test_a_key_file_is_the_owners_alone_and_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "key.json"
    made = json.loads(outerstep("keys", "new", file, "--json").stdout)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(outerstep("keys", "show", file, "--json").stdout)["address"] == made["address"]
    again = outerstep("keys", "new", file)
    assert again.exit_code == 1
    assert "never overwritten" in one_line(again)
    assert json.loads(outerstep("keys", "show", file, "--json").stdout)["address"] == made["address"]


def test_a_sealed_key_shows_its_address_and_needs_the_passphrase_for_its_secret(tmp_path: Path) -> None:
    file = tmp_path / "sealed.json"
    made = json.loads(outerstep("keys", "new", file, "--passphrase", "--json", OUTERSTEP_PASSPHRASE="open").stdout)
    shown = json.loads(outerstep("keys", "show", file, "--json").stdout)
    assert (shown["address"], shown["sealed"]) == (made["address"], True)
    assert outerstep("keys", "export", file, "--yes", OUTERSTEP_PASSPHRASE="shut").exit_code == 1
    exported = json.loads(outerstep("keys", "export", file, "--yes", OUTERSTEP_PASSPHRASE="open").stdout)
    assert format_address(PrivateKey(bytes.fromhex(exported["secret"])).address) == made["address"]


def test_exporting_asks_first(tmp_path: Path) -> None:
    file = tmp_path / "key.json"
    outerstep("keys", "new", file)
    result = CliRunner().invoke(app, ["keys", "export", str(file)], input="n\n")
    assert result.exit_code == 1
    assert "secret" not in result.stdout


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key.json"
    outerstep("keys", "new", file)
    file.chmod(0o644)
    result = outerstep("keys", "show", file)
    assert result.exit_code == 1
    assert "chmod 600" in one_line(result)


def test_keys_are_listed_and_other_files_left_out(tmp_path: Path) -> None:
    outerstep("keys", "new", tmp_path / "a.json")
    (tmp_path / "b.json").write_text("{}")
    listed = json.loads(outerstep("keys", "list", tmp_path, "--json").stdout)
    assert [Path(item["file"]).name for item in listed] == ["a.json"]


def test_nodes_make_a_genesis_together_and_join_it(tmp_path: Path) -> None:
    identities = []
    for index in (0, 1):
        home = tmp_path / f"n{index}"
        result = outerstep("node", "init", "--home", home, "--base-port", str(27000 + 10 * index), "--json")
        assert result.exit_code == 0, result.output
        identities.append(tmp_path / f"n{index}.json")
        identities[-1].write_text(result.stdout)
    genesis = tmp_path / "genesis.json"
    operators = [json.loads(identity.read_bytes())["operator"] for identity in identities]
    make = ["node", "genesis", "--out", str(genesis), "--chain-id", "two", "--account", f"{ADDRESS}=1000"]
    make += map(str, identities)
    made = outerstep(*make, "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout) == {"file": str(genesis), "chain_id": "two", "validators": operators}
    before = genesis.read_bytes()
    assert "never overwritten" in one_line(outerstep(*make))
    assert genesis.read_bytes() == before
    (tmp_path / "none.json").write_text("[]")
    assert outerstep("node", "join", "--home", tmp_path / "n0", genesis, tmp_path / "none.json").exit_code == 1
    assert not list((tmp_path / "n0").rglob("genesis.json")), "a join that fails leaves nothing behind"
    for index in (0, 1):
        joined = outerstep("node", "join", "--home", tmp_path / f"n{index}", genesis, *identities, "--json")
        assert joined.exit_code == 0, joined.output
        assert json.loads(joined.stdout) == {"home": str(tmp_path / f"n{index}"), "peers": operators}
    assert json.loads(genesis.read_bytes())["chain_id"] == "two"
    again = outerstep("node", "init", "--home", tmp_path / "n0")
    assert again.exit_code == 1
    assert "not empty" in one_line(again)


def test_an_identity_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "id.json").write_text("[1]")
    result = outerstep("node", "genesis", "--out", tmp_path / "g.json", "--chain-id", "x", tmp_path / "id.json")
    assert result.exit_code == 1
    assert "id.json is not what" in one_line(result)
    assert not (tmp_path / "g.json").exists()


@pytest.mark.parametrize(
    ("plan", "about"),
    [
        ("rounds = ", "not TOML"),
        ("roundz = 3", "roundz is not a field"),
        ('rounds = "three"', "rounds"),
        ("training = 3", "should be a table"),
        ("rounds = " + "9" * 5000, "not TOML"),
        ("rounds = " + "[" * 100_000, "not TOML"),
    ],
)
def test_a_plan_that_is_wrong_names_the_field(tmp_path: Path, plan: str, about: str) -> None:
    (tmp_path / "plan.toml").write_text(plan)
    key = tmp_path / "key.json"
    outerstep("keys", "new", key)
    result = outerstep("job", "create", tmp_path / "plan.toml", "--key", key, OUTERSTEP_NODE=NOBODY)
    assert result.exit_code == 1
    assert about in one_line(result)


@pytest.mark.parametrize("text", [b"", b"too short to train on", None])
def test_a_text_that_cannot_be_trained_on_is_refused(tmp_path: Path, text: bytes | None) -> None:
    if text is not None:
        (tmp_path / "text.txt").write_bytes(text)
    key = tmp_path / "key.json"
    outerstep("keys", "new", key)
    result = outerstep("job", "create", "--text", tmp_path / "text.txt", "--key", key, OUTERSTEP_NODE=NOBODY)
    assert result.exit_code == 1
    assert "text" in one_line(result)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for command in (["job", "create"], ["da", "put"]):
        result = outerstep(*command, tmp_path / "absent", OUTERSTEP_NODE=NOBODY)
        assert result.exit_code == 1
        assert one_line(result).startswith(f"error: cannot use {tmp_path / 'absent'}: No such file")


def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "key.json"
    outerstep("keys", "new", key)
    run = ("worker", "run", "--job", "1", "--home", tmp_path / "home", "--key", key)
    for device in ("cuda:99", "abacus"):
        result = outerstep(*run, "--device", device, OUTERSTEP_NODE=NOBODY)
        assert result.exit_code == 1
        assert f"device '{device}' cannot be used here" in one_line(result)


def test_a_worker_whose_home_cannot_be_written_says_so(tmp_path: Path) -> None:
    key = tmp_path / "key.json"
    outerstep("keys", "new", key)
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-m", "outerstep", "worker", "run", "--job", "1", "--key", str(key)]
    done = subprocess.run(
        [*command, "--home", str(tmp_path / "file" / "home")],
        capture_output=True,
        text=True,
        env={**os.environ, "OUTERSTEP_NODE": NOBODY},
    )
    assert done.returncode == 1
    assert "--home" in done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_what_libraries_log_does_not_mix_with_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        log = structlog.get_logger()
        log.debug("a member refused")
        log.warning("a member lied")

    run(work())
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "lied" in captured.err
    assert "refused" not in captured.err
