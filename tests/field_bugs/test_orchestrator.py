"""What users of such systems report of their orchestrator. Here is what no other test proves; elsewhere:

- prefect#7239, prefect#16746, a killed run stays Running and holds its slot:
  tests/e2e/test_serving.py::test_a_killed_run_is_found_to_be_dead_and_its_slot_is_free
"""

from __future__ import annotations

import datetime as dt
import json
import typing
from collections.abc import Sequence
from pathlib import Path
from types import NoneType
from typing import Any

import pytest
from prefect.cache_policies import INPUTS, TASK_SOURCE, CachePolicy
from prefect.client.schemas.objects import TaskRun
from prefect.context import TaskRunContext
from pydantic import BaseModel, TypeAdapter

from flows.index import index
from flows.nightly import nightly
from flows.runner import Batches, Handle, PlainRunner
from schemas.plan import Plan
from schemas.snapshot import PartRef, Stage
from schemas.work import ShardJob, Workspace
from tasks.chunk.step import CHUNK
from tasks.contextualize.step import CONTEXTUALIZE
from tasks.embed.step import EMBED
from tasks.load.step import LOAD, load_key
from tasks.plan.planner import PlanOptions
from tasks.publish.passages import PASSAGES
from tasks.publish.stores import BM25, CATALOG, VECTORS
from tasks.step import Step, Whole
from tasks.task import stage_task, whole_task
from tasks.tokens.step import TOKENIZE
from tests.fixtures import make_corpus, plan_of

READS = {LOAD: 0, CHUNK: 1, CONTEXTUALIZE: 2, EMBED: 1, TOKENIZE: 1, PASSAGES: 4}
"""How many earlier stages each stage reads."""
ASPECTS = ("chunks", "embedded", "metadata", "spans", "structure", "text")
MOST_BYTES = 2_000
"""Of what goes into a task, or comes out of it, for one shard: 1,443 were seen. A document that failed adds why."""
SCALARS = {str, int, float, bool, NoneType, Path, dt.datetime}


class Recorder(PlainRunner):
    """A runner that keeps what Prefect would be given to pass on."""

    def __init__(self) -> None:
        self.inputs: list[tuple[str, int, Any]] = []
        self.results: list[tuple[str, Any]] = []

    def stage(self, step: Step, space: Workspace, batches: Batches, *upstream: Sequence[Handle]) -> list[Handle]:
        handles = super().stage(step, space, batches, *upstream)
        for index_, batch in enumerate(batches):
            self.inputs.append((step.stage, len(batch), (batch, [of[index_] for of in upstream])))
            self.results += [(step.stage, ref) for ref in handles[index_]]
        return handles

    def whole(self, step: Whole, space: Workspace, *arguments: Any) -> str:
        key = super().whole(step, space, *arguments)
        shards = max(len(one) for one in [*arguments, ()] if isinstance(one, (list, tuple)))
        self.inputs.append((step.name, shards, arguments))
        self.results.append((step.name, key))
        return key


def size(value: Any) -> int:
    return len(TypeAdapter(Any).dump_json(value))


def recorded(folder: Path, documents: int, words: int) -> Recorder:
    text = {f"{n}.md": f"# Page {n}\n\n" + f"Gauge {n} is read daily. " * words for n in range(documents)}
    recorder = Recorder()
    index(recorder, plan_of(make_corpus(folder / "docs", text)), PlanOptions(), "test")
    return recorder


def test_what_passes_between_tasks_is_refs_whatever_the_corpus(tmp_path: Path) -> None:
    """prefect#10952: all that tasks return stays in the memory of the run; prefect#17547: frames break the cache."""
    small, large = recorded(tmp_path / "small", 2, 2), recorded(tmp_path / "large", 200, 100)
    for recorder in (small, large):
        assert {stage for stage, _ in recorder.results} == {*_names()}
        for stage, shards, given in recorder.inputs:
            assert size(given) <= MOST_BYTES * shards, stage
        for stage, result in recorder.results:
            assert size(result) <= MOST_BYTES, stage
            assert isinstance(result, PartRef | str)
    largest = {stage: size(result) for stage, result in large.results}
    for stage, result in small.results:
        assert largest[stage] - size(result) < 40, f"{stage}: only the digits of its counts grow"


def _names() -> list[str]:
    return [*(step.stage for step in READS), *(whole.name for whole in (CATALOG, BM25, VECTORS))]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return plan_of(make_corpus(tmp_path_factory.mktemp("keys") / "docs", {"a.md": "# A\n\nThe gauge is read.\n"}))


def task_key(policy: CachePolicy, task: Any, inputs: dict[str, Any]) -> str | None:
    run = TaskRun(task_key=task.task_key, dynamic_key="0", flow_run_id=None)
    context = TaskRunContext.model_construct(task=task, task_run=run, parameters=inputs)
    return policy.compute_key(context, inputs, {})


def inputs_of(step: Step, plan: Plan) -> dict[str, Any]:
    reads = dict.fromkeys(ASPECTS, "the same")
    ref = PartRef(stage="load", shard=0, key="0" * 32, config="c", reads=reads)
    return {"space": plan.workspace, "jobs": list(plan.jobs), "upstream": [[ref]] * READS[step]}


def test_two_tasks_with_equal_source_and_arguments_have_keys_of_their_own(plan: Plan) -> None:
    """prefect#23062: by TASK_SOURCE two tasks with equal source and arguments get one another's result."""
    embed, tokens = (stage_task(step, plan.workspace) for step in (EMBED, TOKENIZE))
    equal = inputs_of(EMBED, plan)
    assert equal == inputs_of(TOKENIZE, plan)
    for policy in (TASK_SOURCE, INPUTS):
        theirs = [task_key(policy, task, {"upstream": ["x"]}) for task in (embed, tokens)]
        assert theirs[0] == theirs[1] is not None, "Prefect's own policies would confuse them"
    ours = {task_key(stage_task(step, plan.workspace).cache_policy, embed, inputs_of(step, plan)) for step in READS}
    assert len(ours) == len(READS)


@pytest.mark.parametrize("step", READS, ids=lambda step: step.stage)
def test_another_version_or_config_of_a_stage_has_another_key(plan: Plan, step: Step) -> None:
    """prefect#23062: the source says nothing of what it calls, so that changed code or config finds the old result."""
    task = stage_task(step, plan.workspace)
    stages: dict[Stage, str] = {**plan.workspace.stages, step.stage: "another version or config"}
    space = plan.workspace.model_copy(update={"stages": stages})
    inputs = inputs_of(step, plan)
    if step is LOAD:  # The plan names its part, by the same digest.
        keys = [
            load_key(digests["load"], [("doc_id", "content digest", None)])
            for digests in (plan.workspace.stages, stages)
        ]
        jobs = [[job.model_copy(update={"load_key": key}) for job in plan.jobs] for key in keys]
        assert len({task_key(task.cache_policy, task, inputs | {"jobs": one}) for one in jobs}) == 2
        return
    before = task_key(task.cache_policy, task, inputs)
    assert before == task_key(task.cache_policy, task, inputs)
    assert task_key(task.cache_policy, task, inputs | {"space": space}) != before


def leaves(kind: Any, seen: frozenset[Any] = frozenset()) -> set[Any]:
    """Return the types that a type is made of, models looked through."""
    if kind in seen:
        return set()
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        hints = typing.get_type_hints(kind)
        return set().union(*(leaves(hints[name], seen | {kind}) for name in kind.model_fields))
    if typing.get_origin(kind) is typing.Literal:
        return {type(value) for value in typing.get_args(kind)}
    arguments = [one for one in typing.get_args(kind) if one is not Ellipsis]
    return set().union(*(leaves(one, seen) for one in arguments)) if arguments else {kind}


def test_parameters_of_tasks_and_flows_hold_nothing_like_rows(plan: Plan) -> None:
    """prefect#17547: frames as inputs cannot be hashed, or are hashed as a whole."""
    for step in READS:
        hints = typing.get_type_hints(stage_task(step, plan.workspace).fn)
        assert {*hints} == {"space", "jobs", "upstream", "return"}
        assert set().union(*map(leaves, hints.values())) <= SCALARS
    assert leaves(Sequence[ShardJob]) <= SCALARS
    for whole in (CATALOG, BM25, VECTORS):  # Their arguments are refs, keys and names: the test of refs looks at them.
        assert {*typing.get_type_hints(whole_task(whole, plan.workspace).fn)} == {"space", "arguments", "return"}
    hints = typing.get_type_hints(nightly.fn)
    assert set().union(*(leaves(kind) for name, kind in hints.items() if name != "return")) == {str, NoneType}
    assert len(json.dumps(nightly.parameters.model_dump())) < 1_000
