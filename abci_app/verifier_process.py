"""A process that verifies signatures and nothing else: ``python -m abci_app.verifier_process``.

It reads batches from stdin and answers each on stdout, until stdin ends. Integers are 32 bits, little-endian:

    batch    its number, how many, then 128 bytes for each signature (see primitives.keys.verify_record)
    answer   its number, how many, then one byte for each: 1 good, 0 not
"""

import signal
import struct
import sys
from typing import BinaryIO, Final

from primitives.keys import SIGNATURE_RECORD_BYTES, verify_record

HEADER: Final = struct.Struct("<II")


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer batches until there are no more."""
    while len(header := requests.read(HEADER.size)) == HEADER.size:
        _, count = HEADER.unpack(header)
        records = requests.read(count * SIGNATURE_RECORD_BYTES)
        if len(records) < count * SIGNATURE_RECORD_BYTES:
            return
        starts = range(0, len(records), SIGNATURE_RECORD_BYTES)
        answers.write(header + bytes(verify_record(records[i : i + SIGNATURE_RECORD_BYTES]) for i in starts))
        answers.flush()


if __name__ == "__main__":
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)  # it ends with the application, whose end closes stdin
    serve(sys.stdin.buffer, sys.stdout.buffer)
