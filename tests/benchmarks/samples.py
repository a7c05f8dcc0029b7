"""Made-up results, to look at what is computed from them."""

from typing import Any

import msgspec

from benchmarks.chain.runs import Run

NOTHING: dict[Any, Any] = {float: 0.0, int: 0, bool: False, str: "", float | None: None, dict[str, int]: {}}
"""By the type of a field."""


def a_run(**changes: Any) -> Run:
    """A run of throughput in which nothing went wrong: one validator of ours, the first round, but for `changes`."""
    values = {field.name: NOTHING[field.type] for field in msgspec.structs.fields(Run) if field.required}
    usual = {"part": "throughput", "application": "outerstep", "nodes": 1, "submitted": 1000, "committed": 1000}
    return Run(**{**values, **usual, **changes})
