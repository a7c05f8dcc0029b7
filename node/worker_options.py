"""What a worker can be told on its command line, checked once."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Numbers of blocks are blocks of the chain; amounts 10^-6 token."""

    job_id: int
    device: str = "cpu"
    """As torch names it: cpu, cuda, cuda:1."""
    threads: int | None = None
    """Threads that torch may use; None: its own choice."""
    bond: int | None = None
    """What to put up when the account is no worker yet; None: the least that the chain takes."""
    max_top_ups: int = 3
    """How often in one run a bond that was slashed below the least is filled up again."""
    blob_lifetime: int = 2_000
    """How long the nodes keep a round's payload, in blocks from its publication; those who were away need it."""
    store_checkpoints: bool | None = None
    """Whether to store the state after each settled round; None: when it is this worker's turn among those paid."""
    keep_checkpoints: int = 3
    """Own checkpoints of rounds before the newest settled ones, so many, are deleted."""
    checkpoint_duration: int = 20_000
    replicas: int = 2
    """Providers for each stored file; fewer where the chain has fewer."""
    log_duration: int = 0
    """How long the stored log is kept, in blocks; 0: the log is not stored."""
    allow_short_phases: bool = False
    """Also take part in a job whose phases are too short to be sure to commit and reveal in time."""
    log_every: int = 0
    """Store the log after so many settled rounds; 0: at the end of the job only."""

    def __post_init__(self) -> None:
        for name, smallest in (("job_id", 1), ("blob_lifetime", 10), ("keep_checkpoints", 1), ("replicas", 1)):
            if getattr(self, name) < smallest:
                raise ValueError(f"{name} is {getattr(self, name)}; it should be at least {smallest}")
        for name in ("max_top_ups", "checkpoint_duration", "log_duration", "log_every"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it should not be negative")
        if self.threads is not None and self.threads < 1:
            raise ValueError(f"threads is {self.threads}; it should be at least 1")
