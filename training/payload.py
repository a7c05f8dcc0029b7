"""The bytes that a worker publishes for a round: a header that ties them to job, base, round and worker, a body, a CRC.

All integers little-endian:

    0   4  magic "OSUP"                    28   4  round, uint32
    4   1  version, 2                      32   8  P, number of parameters, uint64
    5   1  codec (0 none, 1 int8, 2 topk)  40  20  address of the worker
    6   2  zero                            60      body (training.compressors)
    8  16  first half of the config hash   -4   4  CRC-32 (zlib) of everything before
    24  4  base round, int32 (-1: genesis)

The body's length is what is left. The CRC finds accidents, not attackers: those are met by commitment and checks.

What a worker trains on is no secret, so on equal hardware anybody can compute its update. With the address in it, a
payload is refused under any other name, and the payloads of two honest workers are never equal.
"""

import struct
import zlib
from typing import Final

from primitives.keys import ADDRESS_BYTES
from training.compressors import compressor_for
from training.config import TrainingConfig
from training.errors import InvalidPayload
from training.fixed_point import Float32, Int64, check_finite_update

MAGIC: Final = b"OSUP"
VERSION: Final = 2
CONFIG_ID_BYTES: Final = 16
_HEADER: Final = struct.Struct("<4sBBH16siIQ20s")
HEADER_BYTES: Final = _HEADER.size
_CRC: Final = struct.Struct("<I")


def compress(config: TrainingConfig, update_P: Float32, *, worker: bytes, base_round: int, round_index: int) -> bytes:
    """The payload for an update (pseudo-gradient: start minus end), float32 [P], of the worker with this address.

    Raises: DivergedError when an element is not finite or too large; ValueError for an address that is not 20 bytes.
    """
    check_finite_update(update_P)
    compressor = compressor_for(config)
    header = _header(config, compressor.codec, worker, base_round, round_index)
    checked = header + compressor.encode(update_P)
    return checked + _CRC.pack(zlib.crc32(checked))


def decompress(config: TrainingConfig, payload: bytes, *, worker: bytes, base_round: int, round_index: int) -> Int64:
    """int64 [P] in units of 2^-32, the same on every machine.

    Raises: InvalidPayload unless these are exactly the bytes of this worker's update for this job, base and round;
    ValueError for an address that is not 20 bytes.
    """
    compressor = compressor_for(config)
    smallest, largest = (bound + HEADER_BYTES + _CRC.size for bound in compressor.body_bounds(config.num_parameters))
    if not smallest <= len(payload) <= largest:
        raise InvalidPayload(f"the payload has {len(payload)} bytes; for this job it has {smallest} to {largest}")
    _check_header(payload[:HEADER_BYTES], _header(config, compressor.codec, worker, base_round, round_index))
    if _CRC.unpack_from(payload, len(payload) - _CRC.size)[0] != zlib.crc32(memoryview(payload)[: -_CRC.size]):
        raise InvalidPayload("the checksum does not match: the payload is damaged")
    return compressor.decode(memoryview(payload)[HEADER_BYTES : -_CRC.size], config.num_parameters)


def max_payload_bytes(config: TrainingConfig) -> int:
    """The most bytes that a payload of this job can have: fetch no more."""
    return compressor_for(config).body_bounds(config.num_parameters)[1] + HEADER_BYTES + _CRC.size


def fp32_bytes(config: TrainingConfig) -> int:
    """What the same update costs as plain float32."""
    return 4 * config.num_parameters


def _header(config: TrainingConfig, codec: int, worker: bytes, base_round: int, round_index: int) -> bytes:
    if len(worker) != ADDRESS_BYTES:
        raise ValueError(f"a worker's address has {ADDRESS_BYTES} bytes, not {len(worker)}")
    config_id = config.hash[:CONFIG_ID_BYTES]
    return _HEADER.pack(MAGIC, VERSION, codec, 0, config_id, base_round, round_index, config.num_parameters, worker)


def _check_header(got: bytes, want: bytes) -> None:
    """Raises: InvalidPayload with the first reason why these are not the same."""
    if got == want:
        return
    magic, version, got_codec, reserved, got_config, got_base, got_round, got_length, got_worker = _HEADER.unpack(got)
    _, _, codec, _, config_id, base_round, round_index, length, worker = _HEADER.unpack(want)
    if magic != MAGIC or version != VERSION or reserved:
        raise InvalidPayload(f"not an update payload of version {VERSION}")
    if (got_config, got_codec) != (config_id, codec):
        raise InvalidPayload("the payload belongs to a job with another configuration")
    if (got_base, got_round) != (base_round, round_index):
        raise InvalidPayload(
            f"the payload is for round {got_round} on base {got_base}, not round {round_index} on base {base_round}"
        )
    if got_worker != worker:
        raise InvalidPayload(f"the payload is of worker {got_worker.hex()}, not of {worker.hex()}")
    raise InvalidPayload(f"the payload is for {got_length} parameters, not {length}")
