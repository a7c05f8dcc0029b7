"""Where and with how many threads torch computes, checked before any work."""

import torch

from training.errors import ConfigError


def prepare_device(name: str, threads: int | None = None) -> None:
    """See that `name` (cpu, cuda, cuda:1, …) can be computed on; limit torch to `threads` where given.

    Raises: ConfigError when this machine has no such device, or torch cannot use it.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        torch.zeros(1, device=torch.device(name))
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ConfigError(f"device {name!r} cannot be used here: {reason}") from error
