"""Logs: the last lines, and new ones as they come."""

from pathlib import Path

from localnet.logs import follow, last_lines, tail
from localnet.state import NodeState


def node_at(home: Path) -> NodeState:
    (home / "logs").mkdir(parents=True)
    return NodeState(index=0, name="node0", home=str(home), operator="", url="", engine_url="", p2p_port=0)


def test_the_last_lines_of_each_file_carry_node_and_process(tmp_path: Path) -> None:
    node = node_at(tmp_path)
    (tmp_path / "logs/app.log").write_text("one\ntwo\nthree\n")
    (tmp_path / "logs/engine.log").write_text("four\n")
    assert list(tail([node], 2)) == ["node0/app | two", "node0/app | three", "node0/engine | four"]


def test_a_missing_log_has_no_lines(tmp_path: Path) -> None:
    assert last_lines(tmp_path / "absent.log", 5) == []


def test_following_gives_whole_new_lines_of_old_new_and_replaced_files(tmp_path: Path) -> None:
    node = node_at(tmp_path)
    app, engine = tmp_path / "logs/app.log", tmp_path / "logs/engine.log"
    app.write_text("before following\n")
    script = iter([(app, "a", "whole\nhal"), (app, "a", "f\n"), (engine, "w", "new file\n"), (app, "w", "again\n")])

    def write_next(_: float) -> None:
        path, mode, text = next(script)
        with path.open(mode) as file:
            file.write(text)

    lines = follow([node], wait=write_next)
    assert [next(lines) for _ in range(4)] == [
        "node0/app | whole",
        "node0/app | half",
        "node0/engine | new file",
        "node0/app | again",
    ]
