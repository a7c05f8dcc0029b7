"""What a daemon sees of its job at one moment; everything it does follows from this and what it has on disk."""

from dataclasses import dataclass

from abci_app.records import Job, Round, Submission
from node.client import Client
from node.errors import NodeError


@dataclass(frozen=True, slots=True)
class JobView:
    """The job and its round in progress. The parts may be a block apart; the chain refuses what comes too late."""

    height: int
    job: Job
    round: Round | None
    """The round in progress, if any."""
    submissions: dict[bytes, Submission]
    """Of that round, by worker."""

    @property
    def is_over(self) -> bool:
        return self.job.status in ("done", "cancelled")

    def included_blobs(self) -> list[tuple[bytes, bytes]]:
        """(worker, blob) of the frozen set, sorted by worker; empty before the aggregate phase."""
        if self.round is None:
            return []
        return [(worker, self.submissions[worker].blob) for worker in self.round.included if worker in self.submissions]

    def revealed_blobs(self) -> list[tuple[bytes, bytes]]:
        """(worker, blob) of everybody who has revealed, sorted by worker."""
        return sorted((worker, item.blob) for worker, item in self.submissions.items() if item.blob)


async def look(client: Client, job_id: int) -> JobView:
    """Read the job as it is now.

    Raises: NodeError, also when the node does not know the job (yet).
    """
    height = await client.height()
    job = await client.job(job_id)
    if job is None:
        raise NodeError(f"the node does not know job {job_id}; is it catching up?")
    if job.open_round < 0:
        return JobView(height, job, None, {})
    round_ = await client.round(job_id, job.open_round)
    if round_ is None or round_.status != "open":
        return JobView(height, job, None, {})
    submissions = await client.submissions(job_id, round_.index)
    return JobView(height, job, round_, {item.worker: item for item in submissions})
