"""The bytes that a worker publishes for one round: a header that ties them to job, base and round, a body, a CRC.

All integers little-endian:

    0   4  magic "OSUP"                    24  4  base round, int32 (-1: genesis)
    4   1  version, 1                      28  4  round, uint32
    5   1  codec (0 none, 1 int8, 2 topk)  32  8  P, number of parameters, uint64
    6   2  zero                            40     body (training.compressors)
    8  16  first half of the config hash   -4  4  CRC-32 (zlib) of everything before

The body's length is what is left. The CRC finds accidents, not attackers: those are met by commitment and checks.
"""

import struct
import zlib
from typing import Final

from training.compressors import compressor_for
from training.config import TrainingConfig
from training.errors import InvalidPayload
from training.fixed_point import Float32, Int64, check_finite_update

MAGIC: Final = b"OSUP"
VERSION: Final = 1
CONFIG_ID_BYTES: Final = 16
_HEADER: Final = struct.Struct("<4sBBH16siIQ")
_CRC: Final = struct.Struct("<I")


def compress(config: TrainingConfig, update_P: Float32, *, base_round: int, round_index: int) -> bytes:
    """The payload for an update (pseudo-gradient: start minus end), float32 [P].

    Raises: DivergedError when an element is not finite or too large.
    """
    check_finite_update(update_P)
    compressor = compressor_for(config)
    header = _header(config, compressor.codec, base_round, round_index)
    checked = header + compressor.encode(update_P)
    return checked + _CRC.pack(zlib.crc32(checked))


def decompress(config: TrainingConfig, payload: bytes, *, base_round: int, round_index: int) -> Int64:
    """int64 [P] in units of 2^-32, the same on every machine.

    Raises: InvalidPayload unless these are exactly the bytes of an update for this job, base and round.
    """
    compressor = compressor_for(config)
    smallest, largest = (bound + _HEADER.size + _CRC.size for bound in compressor.body_bounds(config.num_parameters))
    if not smallest <= len(payload) <= largest:
        raise InvalidPayload(f"the payload has {len(payload)} bytes; for this job it has {smallest} to {largest}")
    _check_header(config, payload[: _HEADER.size], compressor.codec, base_round, round_index)
    if _CRC.unpack_from(payload, len(payload) - _CRC.size)[0] != zlib.crc32(memoryview(payload)[: -_CRC.size]):
        raise InvalidPayload("the checksum does not match: the payload is damaged")
    return compressor.decode(memoryview(payload)[_HEADER.size : -_CRC.size], config.num_parameters)


def max_payload_bytes(config: TrainingConfig) -> int:
    """The most bytes that a payload of this job can have: fetch no more."""
    return compressor_for(config).body_bounds(config.num_parameters)[1] + _HEADER.size + _CRC.size


def fp32_bytes(config: TrainingConfig) -> int:
    """What the same update costs as plain float32."""
    return 4 * config.num_parameters


def _header(config: TrainingConfig, codec: int, base_round: int, round_index: int) -> bytes:
    config_id = config.hash[:CONFIG_ID_BYTES]
    return _HEADER.pack(MAGIC, VERSION, codec, 0, config_id, base_round, round_index, config.num_parameters)


def _check_header(config: TrainingConfig, header: bytes, codec: int, base_round: int, round_index: int) -> None:
    if header == _header(config, codec, base_round, round_index):
        return
    magic, version, got_codec, reserved, config_id, got_base, got_round, got_length = _HEADER.unpack(header)
    if magic != MAGIC or version != VERSION or reserved:
        raise InvalidPayload("not an update payload of version 1")
    if config_id != config.hash[:CONFIG_ID_BYTES] or got_codec != codec:
        raise InvalidPayload("the payload belongs to a job with another configuration")
    if (got_base, got_round) != (base_round, round_index):
        raise InvalidPayload(
            f"the payload is for round {got_round} on base {got_base}, not round {round_index} on base {base_round}"
        )
    raise InvalidPayload(f"the payload is for {got_length} parameters, not {config.num_parameters}")
