"""Who runs the steps: this process, plainly, or Prefect. The steps do not know which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from schemas.errors import TransientError
from schemas.snapshot import PartRef
from schemas.work import ShardJob, Workspace
from tasks.progress import building
from tasks.step import Step, Whole

Batches = Sequence[Sequence[ShardJob]]
Handle = Any
"""What stands for the refs of one batch: the refs themselves, or a future of them."""


class Runner(Protocol):
    """Runs steps over batches of shards."""

    def stage(self, step: Step, space: Workspace, batches: Batches, *upstream: Sequence[Handle]) -> list[Handle]:
        """Start a stage on all batches; return one handle per batch."""
        ...

    def gather(self, handles: Sequence[Handle]) -> list[PartRef]:
        """Wait for all batches of a stage.

        Raises:
            The first error of a batch, after all have ended.
        """
        ...

    def whole(self, step: Whole, space: Workspace, *arguments: Any) -> str:
        """Build one store of the candidate."""
        ...


class PlainRunner:
    """One step after the other in this process."""

    def stage(self, step: Step, space: Workspace, batches: Batches, *upstream: Sequence[Handle]) -> list[Handle]:
        return [
            [
                _retrying(space)(step.run, space, job, *refs)
                for job, *refs in zip(batch, *(handles[index] for handles in upstream), strict=True)
            ]
            for index, batch in enumerate(batches)
        ]

    def gather(self, handles: Sequence[Handle]) -> list[PartRef]:
        return [ref for handle in handles for ref in handle]

    def whole(self, step: Whole, space: Workspace, *arguments: Any) -> str:
        with building(step.name):
            return _retrying(space)(step.run, space, *arguments)


def _retrying(space: Workspace) -> Retrying:
    config = space.config.run
    return Retrying(
        retry=retry_if_exception_type(TransientError),
        stop=stop_after_attempt(config.retries + 1),
        wait=wait_exponential(multiplier=config.retry_delay_seconds, exp_base=2),
        reraise=True,
    )


class PrefectRunner:
    """Prefect tasks, inside a flow."""

    def stage(self, step: Step, space: Workspace, batches: Batches, *upstream: Sequence[Handle]) -> list[Handle]:
        from tasks.task import stage_task

        task = stage_task(step, space)
        return [
            task.with_options(task_run_name=_name(step, batch)).submit(
                space, list(batch), [handles[index] for handles in upstream]
            )
            for index, batch in enumerate(batches)
        ]

    def gather(self, handles: Sequence[Handle]) -> list[PartRef]:
        for handle in handles:
            handle.wait()
        return [PartRef.model_validate(ref) for handle in handles for ref in handle.result()]

    def whole(self, step: Whole, space: Workspace, *arguments: Any) -> str:
        from tasks.task import whole_task

        with building(step.name):
            return whole_task(step, space)(space, list(arguments))


def _name(step: Step, batch: Sequence[ShardJob]) -> str:
    shards = sorted(job.shard for job in batch)
    return f"{step.stage} shard {shards[0]}" if len(shards) == 1 else f"{step.stage} shards {shards[0]} to {shards[-1]}"
