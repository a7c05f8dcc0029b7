"""Where trust starts: the genesis file, which names the first validators."""

import base64
import hashlib
import json
from typing import Final

import msgspec

from node.errors import SetupError
from node.genesis import check_genesis
from node.light.blocks import Validator
from node.light.decoding import DecodingError, read_time
from node.light.errors import TrustError
from node.light.hashes import NS_PER_S, in_order, validators_hash
from node.light.verify import Trusted, TrustRules

DEFAULT_TRUSTING_PERIOD_S: Final = 200.0
"""2,000 blocks, the usual unbonding time, at ten blocks a second, the fastest that nodes make them."""


class GenesisTrust(msgspec.Struct, frozen=True):
    """What follows from a genesis file that is taken for true."""

    chain_id: str
    digest: bytes
    """SHA-256 of the file."""
    trusted: Trusted
    """The validators of the first block, one height below it."""
    rules: TrustRules


def trust_genesis(document: bytes) -> GenesisTrust:
    """Trust in a genesis.json; a header is trusted for as long as a double signature can be punished.

    Raises: TrustError when it is no genesis.
    """
    try:
        chain_id = check_genesis(document)
        parsed = json.loads(document)
        validators = in_order(
            [Validator(base64.b64decode(v["pub_key"]["value"]), int(v["power"])) for v in parsed["validators"]]
        )
        height, time_ns = int(parsed["initial_height"]) - 1, read_time(parsed["genesis_time"])
        period_s = int(parsed["consensus_params"]["evidence"]["max_age_duration"]) / NS_PER_S
        rules = TrustRules(period_s, int(parsed["app_state"]["params"]["unbonding_blocks"]))
    except (SetupError, DecodingError) as error:
        raise TrustError(f"the genesis file cannot be used: {error}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise TrustError(f"the genesis file cannot be used: {error!r}") from error
    trusted = Trusted(height, time_ns, validators, validators_hash(validators), b"")
    return GenesisTrust(chain_id, hashlib.sha256(document).digest(), trusted, rules)
