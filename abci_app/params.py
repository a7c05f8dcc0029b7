"""Parameters of the chain and its genesis: what all nodes must agree on before the first block.

Genesis travels as canonical JSON in `app_state` of CometBFT's genesis.json; addresses are `outer1…` texts there and
byte strings are hex.
"""

import re
from typing import Final

import msgspec

from abci_app.errors import MalformedMessage
from abci_app.forms import check_url
from primitives.amounts import MAX_AMOUNT, MICRO_PER_TOKEN, PPM, AmountError, check_amount
from primitives.keys import KeyFormatError, parse_address

STAKE_PER_POWER: Final = MICRO_PER_TOKEN
"""Bonded micro-token per unit of CometBFT voting power."""
MAX_VALIDATORS: Final = 200
_KEY: Final = re.compile(r"[0-9a-fA-F]{64}")


class GenesisError(ValueError):
    """The genesis document breaks a rule; the message names the field."""


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rules with numbers. Heights are block counts, prices 10^-6 token, shares parts per million."""

    gas_price_micro: int = 1
    """Fee per unit of work."""
    max_block_work: int = 2_000_000
    """Work that one block may hold; see abci_app.work."""
    min_validator_bond: int = 10 * MICRO_PER_TOKEN
    max_validators: int = 100
    """The validators with the most stake take part in consensus; at most 200, so that the rows of a blob fit."""
    min_worker_bond: int = 10 * MICRO_PER_TOKEN
    unbonding_blocks: int = 2_000
    """Until stake on its way back is paid out; also bounds how long a round may take up to its last reveal."""
    slash_double_sign_ppm: int = 50_000
    """Share of bond and unbonding stake burned for a double signature (5 %)."""
    slash_no_reveal_ppm: int = 10_000
    """Share of a worker's bond burned when it commits and does not reveal (1 %)."""
    max_missed_rounds: int = 2
    """Rounds missed in a row after which a member is no longer waited for."""
    attest_quorum_ppm: int = 666_666
    """Share of the included workers (and of the scorers' stake) that must attest the same root."""
    max_void_rounds: int = 10
    """Void rounds in a row after which a job is cancelled and refunded."""
    max_blob_lifetime: int = 100_000
    blob_price_per_mib_block: int = 10
    """Per MiB (begun) of blob and block of lifetime, paid to those who attested."""
    deal_price_hot: int = 4
    """Per MiB (begun), replica and block."""
    deal_price_temporary: int = 1
    deal_pending_blocks: int = 200
    """Time to upload and activate a deal."""
    max_deal_duration: int = 10_000_000
    max_deal_replicas: int = 16
    max_file_bytes: int = 1 << 40
    kept_service_sets: int = 16
    """Old ServiceSets that stay for look-ups, besides those that certificates may still name."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if type(value) is not int or not 0 < value <= MAX_AMOUNT:
                raise ValueError(f"params.{name} is {value!r}; it should be a whole number above 0")
            if name.endswith("_ppm") and value > PPM:
                raise ValueError(f"params.{name} is {value}; it should be at most {PPM}")
        if self.min_validator_bond < STAKE_PER_POWER:
            raise ValueError(
                f"params.min_validator_bond should be at least {STAKE_PER_POWER}: less has no voting power"
            )
        if self.max_validators > MAX_VALIDATORS:
            raise ValueError(f"params.max_validators should be at most {MAX_VALIDATORS}")
        if self.attest_quorum_ppm <= PPM // 2:
            raise ValueError("params.attest_quorum_ppm should be above one half, or two states could both settle")


class GenesisAccount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    address: str
    balance: int


class GenesisValidator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`consensus_key` must also stand in CometBFT's own list of genesis validators, with power bond // 10^6."""

    operator: str
    consensus_key: str
    bond: int
    service_key: str = ""
    url: str = ""


class Genesis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`app_state` of genesis.json. The supply is the sum of all balances and bonds."""

    accounts: tuple[GenesisAccount, ...]
    validators: tuple[GenesisValidator, ...]
    params: Params = msgspec.field(default_factory=Params)


def parse_genesis(app_state: bytes) -> Genesis:
    """Read and check `app_state` (JSON).

    Raises: GenesisError with the field that is wrong: an unknown field, a bad address or key, a duplicate, a bond
    below the minimum, a supply above 2^63-1.
    """
    try:
        genesis = msgspec.json.decode(app_state, type=Genesis)
    except (msgspec.MsgspecError, ValueError) as error:
        raise GenesisError(f"app_state: {error}") from error
    try:
        _check_genesis(genesis)
    except (AmountError, KeyFormatError, ValueError) as error:
        raise GenesisError(str(error)) from error
    return genesis


def _check_genesis(genesis: Genesis) -> None:
    supply = 0
    for account in genesis.accounts:
        supply += check_amount(account.balance, name=f"balance of {account.address}", zero_ok=True)
    _refuse_duplicates("accounts", [parse_address(account.address) for account in genesis.accounts])
    if not 1 <= len(genesis.validators) <= genesis.params.max_validators:
        limit = genesis.params.max_validators
        raise ValueError(f"validators has {len(genesis.validators)} entries; params.max_validators allows 1 to {limit}")
    for validator in genesis.validators:
        supply += check_amount(validator.bond, name=f"bond of {validator.operator}")
        _check_validator(validator, genesis.params)
    _refuse_duplicates("validators.operator", [parse_address(v.operator) for v in genesis.validators])
    for name in ("consensus_key", "service_key"):
        keys = [bytes.fromhex(getattr(validator, name)) for validator in genesis.validators]
        _refuse_duplicates(f"validators.{name}", [key for key in keys if key])
    check_amount(supply, name="the supply (all balances and bonds)")


def _check_validator(validator: GenesisValidator, params: Params) -> None:
    operator = validator.operator
    if validator.bond < params.min_validator_bond:
        raise ValueError(f"bond of {operator} is below min_validator_bond")
    if not _KEY.fullmatch(validator.consensus_key):
        raise ValueError(f"consensus_key of {operator} should be 32 bytes in hex")
    if validator.service_key and not _KEY.fullmatch(validator.service_key):
        raise ValueError(f"service_key of {operator} should be 32 bytes in hex")
    if bool(validator.service_key) != bool(validator.url):
        raise ValueError(f"{operator} should have both service_key and url, or neither")
    if validator.url:
        try:
            check_url(validator.url)
        except MalformedMessage as error:
            raise ValueError(f"url of {operator}: {error}") from error


def _refuse_duplicates(name: str, values: list[bytes]) -> None:
    if len(set(values)) != len(values):
        raise ValueError(f"{name} has a duplicate")
