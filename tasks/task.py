"""How a step becomes a Prefect task: retried by the class of its error, cached across runs by its parts.

Prefect's default cache policy never hits across runs, its INPUTS policy confuses tasks with equal arguments, and a
cache record whose result is gone fails the task. So the key here is the stage with the keys of the parts that the
task would make, and a record is dropped when one of those parts is missing: exactly what is missing runs again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import Task
from prefect.cache_policies import CachePolicy
from prefect.client.schemas.objects import State, TaskRun
from prefect.context import TaskRunContext

from schemas.config import RunConfig
from schemas.errors import TransientError
from schemas.identity import digest
from schemas.snapshot import PartRef
from schemas.work import ShardJob, Workspace
from tasks.step import Step, Whole, lake_of

TaskOfRefs = Task[..., list[PartRef]]
TaskOfKey = Task[..., str]


def records_folder(space: Workspace) -> Path:
    """Return where the cache records of a collection lie. Disposable."""
    return lake_of(space).storage.local("state/prefect")


def _drop_record(space: Workspace, key: str) -> None:
    (records_folder(space) / key).unlink(missing_ok=True)


@dataclass
class PartsPolicy(CachePolicy):
    """Cached while all parts of the task exist."""

    step: Step | None = None

    def compute_key(
        self, task_ctx: TaskRunContext, inputs: dict[str, Any], flow_parameters: dict[str, Any], **kwargs: Any
    ) -> str:
        assert self.step is not None
        space: Workspace = inputs["space"]
        jobs: Sequence[ShardJob] = inputs["jobs"]
        keys = [self.step.key(space, job, *refs) for job, *refs in zip(jobs, *inputs["upstream"], strict=True)]
        record = f"{self.step.stage}-{digest(*keys, *(job.shard for job in jobs))[:32]}"
        if any(self.step.find(lake_of(space), key) is None for key in keys):
            _drop_record(space, record)
        return record


@dataclass
class WholePolicy(CachePolicy):
    """Cached while the store exists."""

    whole: Whole | None = None

    def compute_key(
        self, task_ctx: TaskRunContext, inputs: dict[str, Any], flow_parameters: dict[str, Any], **kwargs: Any
    ) -> str:
        assert self.whole is not None
        space: Workspace = inputs["space"]
        key = self.whole.key(space, *inputs["arguments"])
        record = f"{self.whole.name}-{key}"
        if not self.whole.exists(space, key):
            _drop_record(space, record)
        return record


def _worth_retrying(_: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    failure = state.result(raise_on_failure=False)
    return isinstance(failure, TransientError)


def _options(config: RunConfig, records: Path) -> dict[str, Any]:
    return {
        "retries": config.retries,
        "retry_delay_seconds": [config.retry_delay_seconds * 2**attempt for attempt in range(config.retries)],
        "retry_condition_fn": _worth_retrying,
        "persist_result": True,
        "result_serializer": "json",
        "result_storage": records,
    }


def stage_task(step: Step, space: Workspace) -> TaskOfRefs:
    """Return the task that runs a step over a batch of shards."""

    def run(space: Workspace, jobs: Sequence[ShardJob], upstream: Sequence[Sequence[PartRef]]) -> list[PartRef]:
        return [step.run(space, job, *refs) for job, *refs in zip(jobs, *upstream, strict=True)]

    options = _options(space.config.run, records_folder(space))
    return Task(run, name=step.stage, cache_policy=PartsPolicy(step=step), **options)


def whole_task(whole: Whole, space: Workspace) -> TaskOfKey:
    """Return the task that builds one store of the candidate."""

    def run(space: Workspace, arguments: Sequence[Any]) -> str:
        return whole.run(space, *arguments)

    options = _options(space.config.run, records_folder(space))
    return Task(run, name=whole.name, cache_policy=WholePolicy(whole=whole), **options)
