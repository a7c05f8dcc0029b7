"""Headers verified before, one file for each chain, so that the next time starts from the newest of them.

The file is checked like an answer from the network when it is read: a damaged one must not make honest nodes look bad.
"""

from pathlib import Path
from typing import Final

import msgspec

from node.files import write_atomically
from node.light.blocks import LightBlock
from node.light.errors import InvalidBlock, TrustError
from node.light.verify import TrustRules, check_block

KEPT: Final = 16
FORMAT: Final = 1
MAX_FILE_BYTES: Final = 64 * 1024 * 1024


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    chain_id: str
    genesis: bytes
    """SHA-256 of the genesis file that trust began with; empty when it began with a hash."""
    rules: TrustRules | None
    blocks: tuple[LightBlock, ...]


class TrustedStore:
    """The verified blocks of one chain, in `folder`/CHAIN_ID.json. `folder` is made when something is kept."""

    def __init__(self, folder: Path, chain_id: str) -> None:
        self.path = folder / f"{chain_id}.json"
        self._file = self._read(chain_id)

    @property
    def blocks(self) -> tuple[LightBlock, ...]:
        """By height."""
        return self._file.blocks

    @property
    def rules(self) -> TrustRules | None:
        """Those of the genesis that trust began with."""
        return self._file.rules

    def add(self, block: LightBlock) -> None:
        """Keep a verified block; the oldest goes when there are too many.

        Raises: OSError when the file cannot be written.
        """
        by_height = {kept.height: kept for kept in (*self.blocks, block)}
        newest = tuple(by_height[height] for height in sorted(by_height)[-KEPT:])
        self._write(msgspec.structs.replace(self._file, blocks=newest))

    def bind(self, genesis: bytes, rules: TrustRules) -> None:
        """Say that the chain is the one of this genesis (SHA-256 of its file), which has these rules.

        Raises: TrustError when the file is of a chain with another genesis.
        """
        if self._file.genesis not in (b"", genesis):
            raise TrustError(
                f"{self.path} holds headers of another chain with the same name; delete it if that chain is gone"
            )
        self._write(msgspec.structs.replace(self._file, genesis=genesis, rules=rules))

    def _write(self, file: _File) -> None:
        self._file = file
        if file.blocks:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, msgspec.json.encode(file))

    def _read(self, chain_id: str) -> _File:
        try:
            if self.path.stat().st_size > MAX_FILE_BYTES:
                raise TrustError(self._damaged("it is too long"))
            file = msgspec.json.decode(self.path.read_bytes(), type=_File)
            if (file.format, file.chain_id) != (FORMAT, chain_id):
                raise TrustError(self._damaged("it is of another chain or version"))
            for block in file.blocks:
                check_block(block, chain_id)
        except FileNotFoundError:
            return _File(FORMAT, chain_id, b"", None, ())
        except (msgspec.MsgspecError, InvalidBlock, UnicodeDecodeError) as error:
            raise TrustError(self._damaged(str(error))) from error
        return file

    def _damaged(self, why: str) -> str:
        return f"{self.path} is damaged ({why}); delete it and start again with --genesis or --trust-hash"
