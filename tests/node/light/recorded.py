"""The recorded chain (see record.py) in the forms that tests want."""

import copy
import json
from typing import Any

from node.light.blocks import LightBlock
from node.light.decoding import light_block, read_signed_header, read_validators
from node.light.verify import TrustRules
from tests.node.light.record import RECORDED

DOCUMENT: dict[str, Any] = json.loads(RECORDED.read_text())
CHAIN_ID: str = DOCUMENT["genesis"]["chain_id"]
LAST_HEIGHT = len(DOCUMENT["blocks"])
RULES = TrustRules(trusting_period_s=200.0, unbonding_blocks=2000)


def answers(height: int) -> dict[str, Any]:
    """A copy of what CometBFT answered about a height, to be changed."""
    block: dict[str, Any] = copy.deepcopy(DOCUMENT["blocks"][height - 1])
    return block


def read(document: dict[str, Any], height: int) -> LightBlock:
    header, commit = read_signed_header(document["commit"])
    validators, _ = read_validators(document["validators"], height)
    return light_block(header, commit, validators)


def block(height: int) -> LightBlock:
    return read(DOCUMENT["blocks"][height - 1], height)


def now_ns() -> int:
    """Five seconds after the last block."""
    return block(LAST_HEIGHT).header.time_ns + 5 * 10**9
