"""Blocks and their results as CometBFT serves them, reduced to what a load is judged by."""

from typing import TypeVar

import aiohttp
import msgspec

from localnet.load.errors import LoadError

T = TypeVar("T")


class _TxData(msgspec.Struct):
    txs: list[str] | None


class _Block(msgspec.Struct):
    data: _TxData


class _BlockResult(msgspec.Struct):
    block: _Block


class _BlockAnswer(msgspec.Struct):
    result: _BlockResult


class _TxResult(msgspec.Struct):
    code: int = 0
    log: str = ""


class _Results(msgspec.Struct):
    txs_results: list[_TxResult] | None


class _ResultsAnswer(msgspec.Struct):
    result: _Results


async def block_txs(session: aiohttp.ClientSession, url: str, height: int) -> list[bytes]:
    """The block's transactions, in base64.

    Raises: LoadError.
    """
    answer = await _get(session, f"{url}/block?height={height}", _BlockAnswer)
    return [text.encode() for text in answer.result.block.data.txs or ()]


async def failures(session: aiohttp.ClientSession, url: str, height: int) -> dict[int, str]:
    """The block's transactions that failed: place in the block to what the application said.

    Raises: LoadError.
    """
    answer = await _get(session, f"{url}/block_results?height={height}", _ResultsAnswer)
    results = answer.result.txs_results or []
    return {place: f"code {each.code}: {each.log}" for place, each in enumerate(results) if each.code}


async def _get(session: aiohttp.ClientSession, url: str, form: type[T]) -> T:
    try:
        async with session.get(url) as response:
            return msgspec.json.decode(await response.read(), type=form)
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise LoadError(f"{url} gives no answer: {error}") from error
    except msgspec.MsgspecError as error:
        raise LoadError(f"{url} answers in an unexpected form: {error}") from error
