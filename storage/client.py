"""Upload, download and read files by their roots. Nothing a provider says is believed without its proof."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Final

import aiohttp

from primitives.deals import SEGMENT_BYTES, receipt_digest
from primitives.keys import verify_signature
from storage.errors import ProviderError, UnusableFile, UploadFailed
from storage.partial import PartialFile
from storage.provider import FileAnswer, Provider, RetryPolicy
from storage.terms import DealTerms
from storage.transfer import Progress, ProgressReport, SegmentFetcher, for_each
from storage.tree import FileTree, SegmentReader, segment_length

MAX_ROUNDS: Final = 3
"""How often a provider that finds segments missing when asked for the receipt is sent them again."""


class StorageClient:
    """A client over one aiohttp session, which stays the caller's to close.

    Args: segments_at_once, per provider when uploading, in all when downloading (each takes about 1 MiB of memory);
    timeout_s, for one request about one segment.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        segments_at_once: int = 4,
        timeout_s: float = 30.0,
        retry: RetryPolicy | None = None,
    ) -> None:
        if segments_at_once < 1 or timeout_s <= 0:
            raise ValueError("segments_at_once should be at least 1 and timeout_s above 0")
        self.session = session
        self._segments_at_once = segments_at_once
        self._timeout_s = timeout_s
        self._retry = retry or RetryPolicy()

    async def upload(
        self,
        source: str | os.PathLike[str] | bytes,
        deal: DealTerms,
        providers: Mapping[bytes, str],
        on_progress: ProgressReport | None = None,
        *,
        chain_id: str,
        service_keys: Mapping[bytes, bytes],
    ) -> list[tuple[bytes, bytes]]:
        """Bring a file (a path or bytes) to every provider of a deal; only what a provider lacks is sent.

        Stopped half way and started again it goes on where it was, because providers are asked first.

        Args: providers, operator address -> base address; service_keys, operator address -> 32 bytes x-only;
        on_progress, called with (bytes done, bytes in all) over all providers together.
        Returns: (operator, receipt) of every provider, sorted by operator; each receipt is a valid signature.
        Raises: UnusableFile when the file is not the deal's; UploadFailed when some provider has not given a valid
        receipt. The others have finished by then; their receipts are in the error.
        """
        tree = await asyncio.to_thread(FileTree.build, source)
        if (tree.root, tree.size) != (deal.root, deal.size):
            raise UnusableFile(f"this is not the file of deal {deal.id}: root {tree.root.hex()}, {tree.size} bytes")
        progress = Progress(deal.size * len(deal.providers), on_progress)
        receipts: dict[bytes, bytes] = {}
        failures: dict[bytes, str] = {}
        with SegmentReader(source) as reader:

            async def serve(operator: bytes) -> None:
                try:
                    provider = self._provider(providers.get(operator, ""))
                    receipt = await self._upload_to(operator, provider, deal, tree, reader, progress)
                    _check_receipt(provider.url, chain_id, deal, service_keys.get(operator, b""), receipt)
                    receipts[operator] = receipt
                except ProviderError as error:
                    failures[operator] = str(error)

            await for_each(
                range(len(deal.providers)), max(1, len(deal.providers)), lambda place: serve(deal.providers[place])
            )
        if failures:
            raise UploadFailed(sorted(receipts.items()), failures)
        return sorted(receipts.items())

    async def download(
        self,
        root: bytes,
        size: int,
        urls: Sequence[str],
        target: str | os.PathLike[str],
        on_progress: ProgressReport | None = None,
    ) -> None:
        """Fetch a file to `target` by way of `target.part`; an earlier start is resumed. Replaces what is there.

        Args: urls, base addresses of providers, in any order; some may be wrong, slow or down.
        Raises: DownloadFailed with what each provider did; UnusableFile when `target` cannot be written.
        """
        fetcher = self._fetcher(root, size, urls)
        with PartialFile(target, root, size) as partial:
            await asyncio.to_thread(partial.resume)
            progress = Progress(size, on_progress)
            missing = [index for index in range(partial.held.total) if index not in partial.held]
            progress.set(root, size - sum(segment_length(size, index) for index in missing))

            async def bring(index: int) -> None:
                segment = await fetcher.fetch(index)
                partial.write(index, segment.data)
                progress.add(root, len(segment.data))

            await for_each(missing, self._segments_at_once, bring)
            await asyncio.to_thread(partial.finish)

    async def read(self, root: bytes, size: int, urls: Sequence[str], offset: int, length: int) -> bytes:
        """`length` bytes from `offset`, fewer only where the file ends; fetches the segments that cover them.

        Raises: DownloadFailed; ValueError for a negative offset or length.
        """
        if offset < 0 or length < 0:
            raise ValueError(f"offset {offset} and length {length} should be 0 or more")
        end = min(size, offset + length)
        fetcher = self._fetcher(root, size, urls)
        if offset >= end:
            return b""
        first = offset // SEGMENT_BYTES
        parts: dict[int, bytes] = {}

        async def bring(index: int) -> None:
            parts[index] = (await fetcher.fetch(index)).data

        await for_each(range(first, -(-end // SEGMENT_BYTES)), self._segments_at_once, bring)
        start = first * SEGMENT_BYTES
        return b"".join(parts[index] for index in sorted(parts))[offset - start : end - start]

    async def file_info(self, url: str, root: bytes) -> FileAnswer:
        """What one provider says it holds of a file.

        Raises: ProviderError; its `code` is "unknown" or "gone" when there is no such file (any more).
        """
        return await self._provider(url).file(root)

    def _provider(self, url: str) -> Provider:
        if not url:
            raise ProviderError("(no address)", "this provider has not registered an address")
        return Provider(self.session, url, timeout_s=self._timeout_s)

    def _fetcher(self, root: bytes, size: int, urls: Sequence[str]) -> SegmentFetcher:
        return SegmentFetcher(self.session, urls, root, size, retry=self._retry, timeout_s=self._timeout_s)

    async def _upload_to(
        self,
        operator: bytes,
        provider: Provider,
        deal: DealTerms,
        tree: FileTree,
        reader: SegmentReader,
        progress: Progress,
    ) -> bytes:
        async def send(index: int) -> None:
            segment = await asyncio.to_thread(lambda: tree.segment(index, reader.read(index)))
            await self._retry.run(lambda: provider.put_segment(deal.id, index, segment))
            progress.add(operator, len(segment.data))

        rounds = 0
        while True:
            rounds += 1
            held = await self._retry.run(lambda: provider.held(deal))
            missing = [index for index in range(held.total) if index not in held]
            progress.set(operator, deal.size - sum(segment_length(deal.size, index) for index in missing))
            await for_each(missing, self._segments_at_once, send)
            try:
                return await self._retry.run(lambda: provider.receipt(deal))
            except ProviderError as error:
                if error.code != "incomplete" or rounds == MAX_ROUNDS:
                    raise


def _check_receipt(url: str, chain_id: str, deal: DealTerms, service_key: bytes, receipt: bytes) -> None:
    digest = receipt_digest(chain_id, deal.id, deal.root, deal.size)
    if not verify_signature(service_key, digest, receipt):
        raise ProviderError(url, f"its receipt for deal {deal.id} is not signed by its registered service key")
