"""Many segments at once, with bounds: what upload, download and read share."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

import aiohttp

from primitives.deals import file_root
from primitives.hashing import HASH_BYTES
from primitives.merkle import EMPTY_ROOT
from storage.errors import DownloadFailed, ProviderError
from storage.provider import Provider, RetryPolicy
from storage.tree import Segment

ProgressReport = Callable[[int, int], None]
"""Called with (bytes done, bytes in all)."""


class Progress:
    """Adds up what several transfers have done and tells whoever wants to know."""

    def __init__(self, total: int, report: ProgressReport | None) -> None:
        self._total = total
        self._report = report
        self._done: dict[object, int] = {}

    def set(self, part: object, num_bytes: int) -> None:
        """`num_bytes` of `part` are done."""
        self._done[part] = num_bytes
        if self._report is not None:
            self._report(sum(self._done.values()), self._total)

    def add(self, part: object, num_bytes: int) -> None:
        """`num_bytes` more of `part` are done."""
        self.set(part, self._done.get(part, 0) + num_bytes)


async def for_each(indices: Iterable[int], num_workers: int, action: Callable[[int], Awaitable[None]]) -> None:
    """Run `action` on every index, `num_workers` at a time. The first failure stops the rest and is raised."""
    queue = iter(indices)

    async def work() -> None:
        for index in queue:
            await action(index)

    tasks = [asyncio.create_task(work()) for _ in range(num_workers)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class SegmentFetcher:
    """Gets proven segments of one file from whichever provider delivers.

    Segments are spread over the providers; one that fails goes to the end of the line, so a provider that stalls or
    lies costs its first few requests and no more.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        urls: Sequence[str],
        root: bytes,
        size: int,
        *,
        retry: RetryPolicy,
        timeout_s: float,
    ) -> None:
        """Raises: ValueError; DownloadFailed without providers, or when the root of 0 bytes is not the empty file's."""
        if len(root) != HASH_BYTES or not 0 <= size < 2**63:
            raise ValueError(f"a root of {len(root)} bytes and a size of {size}; want {HASH_BYTES}, and 0 or more")
        if not urls and size:
            raise DownloadFailed("no provider to download from")
        if size == 0 and root != file_root(0, EMPTY_ROOT):
            raise DownloadFailed("this is not the root of an empty file")
        self._providers = [Provider(session, url, timeout_s=timeout_s) for url in dict.fromkeys(urls)]
        self._strikes = [0] * len(self._providers)
        self._root = root
        self._size = size
        self._retry = retry

    async def fetch(self, index: int) -> Segment:
        """Segment `index`.

        Raises: DownloadFailed, which says what each provider did, when none has delivered after all tries.
        """
        failures: dict[str, ProviderError] = {}
        for attempt in range(self._retry.attempts):
            segment = await self._ask_each(index, failures)
            if segment is not None:
                return segment
            hopeful = [error for error in failures.values() if error.may_retry]
            if not hopeful:
                break
            if attempt < self._retry.attempts - 1:
                await asyncio.sleep(self._retry.delay_s(attempt, hopeful[0].retry_after_s))
        reasons = "; ".join(str(error) for error in failures.values())
        raise DownloadFailed(f"segment {index} of {self._root.hex()[:16]}… could not be fetched: {reasons}")

    async def _ask_each(self, index: int, failures: dict[str, ProviderError]) -> Segment | None:
        total = len(self._providers)
        order = sorted(range(total), key=lambda place: (self._strikes[place], (place - index) % total))
        for place in order:
            provider = self._providers[place]
            before = failures.get(provider.url)
            if before is not None and not before.may_retry:
                continue
            try:
                return await provider.segment(self._root, self._size, index)
            except ProviderError as error:
                self._strikes[place] += 1
                failures[provider.url] = error
        return None
