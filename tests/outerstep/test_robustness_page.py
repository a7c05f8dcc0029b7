"""docs/robustness.md names tests that exist, so that a promise cannot lose its test unseen."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = sorted(set(re.findall(r"`([a-z_/]+/test_[a-z_]+\.py(?:::\w+)?)`", (ROOT / "docs/robustness.md").read_text())))


def test_the_page_names_many_tests() -> None:
    assert len(NAMED) > 40


@pytest.mark.parametrize("name", NAMED)
def test_each_of_them_is_there(name: str) -> None:
    path, _, function = name.partition("::")
    source = (ROOT / "tests" / path).read_text()
    assert not function or re.search(rf"\bdef {function}\(|^{function} = |^class {function}\b", source, re.MULTILINE)
