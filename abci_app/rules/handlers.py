"""Which handler applies which message: one table."""

from collections.abc import Callable
from typing import Any, Final

from abci_app import messages as m
from abci_app.block import BlockContext
from abci_app.rules import accounts, blobs, deals, jobs, rounds, stake, workers
from abci_app.rules.effect import Effect
from abci_app.state import Branch

Handler = Callable[[Branch, Any, bytes, BlockContext], Effect]
"""(branch, message, sender, block) -> effect. Raises InvalidTransaction; the caller then drops the branch."""

HANDLERS: Final[dict[type[m.Message], Handler]] = {
    m.Transfer: accounts.transfer,
    m.RegisterValidator: stake.register_validator,
    m.Bond: stake.bond,
    m.Unbond: stake.unbond,
    m.RegisterService: stake.register_service,
    m.RegisterWorker: workers.register_worker,
    m.RetireWorker: workers.retire_worker,
    m.CreateJob: jobs.create_job,
    m.CancelJob: jobs.cancel_job,
    m.JoinJob: jobs.join_job,
    m.LeaveJob: jobs.leave_job,
    m.CommitUpdate: rounds.commit_update,
    m.RevealUpdate: rounds.reveal_update,
    m.ScoreUpdates: rounds.score_updates,
    m.AttestState: rounds.attest_state,
    m.PublishBlob: blobs.publish_blob,
    m.CreateDeal: deals.create_deal,
    m.ActivateDeal: deals.activate_deal,
    m.ExtendDeal: deals.extend_deal,
    m.DeleteDeal: deals.delete_deal,
}
