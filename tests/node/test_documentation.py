"""docs/running.md names every setting and every method there is."""

import re
from dataclasses import fields, is_dataclass
from pathlib import Path

from node import config
from node.rpc_methods import METHODS

PAGE = (Path(config.__file__).parent.parent / "docs/running.md").read_text()
NAMED = set(re.findall(r"`([A-Za-z0-9_.]+)`", PAGE))


def test_every_setting_is_named() -> None:
    node = config.NodeConfig()
    sections = [getattr(node, item.name) for item in fields(node) if is_dataclass(getattr(node, item.name))]
    settings = {item.name for section in sections for item in fields(section)} | {"moniker", "log_level"}
    assert settings <= NAMED


def test_every_method_is_named_and_none_that_is_not_there() -> None:
    assert set(METHODS) <= NAMED
    assert {name for name in NAMED if re.fullmatch(r"[a-z]+_(get|list)[A-Z]?\w*", name)} <= set(METHODS)
