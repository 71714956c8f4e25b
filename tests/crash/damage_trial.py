"""One trial: a file is damaged; what readers, the doctor, its remedy, and the next runs make of it."""

from __future__ import annotations

import json
import re
import shutil
import traceback
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from query.opening import open_retriever
from query.retriever import Mode
from schemas.errors import GlossatorError
from tests.crash.damage_lake import CREW, HIDDEN, PURGED, Kind, edit, harm
from tests.crash.forks import start
from tests.crash.inspection import PASSAGES, QUESTION, Contents, answer, contents
from tests.crash.room import Room, Said
from tests.crash.trial import enter

Verdict = Literal["the same", "the same, with a note", "an error", "another ranking", "WRONG"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a reader was told.

    Attributes:
        hits: (chunk_id, URI, score) in their order.
        error: (what, hint), where it was refused; (traceback, "") where it broke.
    """

    way: str | None = None
    notes: tuple[str, ...] = ()
    hits: tuple[tuple[str, str, float], ...] = ()
    error: tuple[str, str] | None = None
    broke: bool = False


@dataclass(frozen=True, slots=True)
class Healthy:
    """The lake without damage: what readers are told, what is published, and what the two runs make of it."""

    told: Mapping[str, Asked]
    contents: Contents
    again: tuple[Contents, Mapping[str, Asked]]
    edited: tuple[Contents, Mapping[str, Asked]]


@dataclass(frozen=True, slots=True)
class DamageTrial:
    """What came of one damage.

    Attributes:
        reader: the worst of what the readers were told.
        doctor: "found", "nothing to find" or "not found".
        remedy: what mended it.
        runs: what `index` did on the damaged lake, unchanged and after an edit.
    """

    kind: str
    damage: str
    path: str
    reader: str
    doctor: str
    remedy: str
    runs: tuple[str, str]
    violations: tuple[str, ...]


QUESTIONS: dict[str, tuple[Mode, tuple[str, ...] | None, bool]] = {
    "hybrid": ("hybrid", None, False),
    "dense": ("dense", None, False),
    "bm25": ("bm25", None, False),
    "the crew": ("hybrid", (CREW,), False),
    "the crew, in the kept snapshot": ("hybrid", (CREW,), True),
}


def ask(room: Room, old: str) -> dict[str, Asked]:
    """Ask everything that readers ask; ``old`` is the name of the kept snapshot."""
    found = {}
    for label, (mode, groups, of_old) in QUESTIONS.items():
        try:
            with closing(open_retriever(room.lake, room.config({}), old if of_old else None)) as retriever:
                result = retriever.search(QUESTION, PASSAGES, mode, groups=groups)
            hits = tuple((hit.passage.chunk_id, hit.passage.document.uri, hit.score) for hit in result.hits)
            found[label] = Asked(result.dense_way, result.notes, hits)
        except GlossatorError as error:
            found[label] = Asked(error=(error.what, error.hint or ""))
        except Exception:
            found[label] = Asked(error=(traceback.format_exc(), ""), broke=True)
    return found


def judge(told: Asked, healthy: Asked) -> tuple[Verdict, str]:
    """Compare what a reader was told with what the whole lake says."""
    if told.broke and told.error:
        return "WRONG", f"a traceback: {told.error[0].splitlines()[-1]}"
    if told.error:
        what, hint = told.error
        good = hint and "/" in what + hint and "\n" not in what + hint
        return ("an error", "") if good else ("WRONG", f"an error without a file or a way on: {what} -> {hint}")
    shown = {uri for _, uri, _ in told.hits} - {uri for _, uri, _ in healthy.hits}
    if shown & {HIDDEN, PURGED}:
        return "WRONG", f"hidden documents are shown: {sorted(shown)}"
    if {hit[:2] for hit in told.hits} != {hit[:2] for hit in healthy.hits}:
        return "WRONG", f"{len(told.hits)} passages of {len(healthy.hits)}, without a word"
    scores = {chunk: score for chunk, _, score in healthy.hits}
    if any(abs(scores[chunk] - score) > 1e-4 for chunk, _, score in told.hits):
        return "another ranking", ""
    # Which way it goes without a note depends on how many rows the vector index finds.
    return ("the same" if told.notes == healthy.notes else "the same, with a note"), ""


def _index(room: Room, *, edited: bool) -> Said:
    if edited:
        edit(room)
    return room.command("index", "--json")


def _look(room: Room, old: str) -> tuple[Contents, Mapping[str, Asked]]:
    config = room.config({})
    return contents(room.lake, config, answer(room.lake, config)), ask(room, old)


def examine_healthy(room: Room, old: str) -> Healthy:
    """Look at the lake without damage, and at what runs make of it."""

    def now() -> tuple[Contents, Mapping[str, Asked]]:
        enter()
        said = room.command("doctor", "--json")
        assert said.code == 0, said
        return _look(room, old)

    def then(edited: bool) -> Callable[[], tuple[Contents, Mapping[str, Asked]]]:
        def run() -> tuple[Contents, Mapping[str, Asked]]:
            enter()
            said = _index(room, edited=edited)
            assert said.code in {0, 3}, said
            return _look(room, old)

        return run

    results = []
    for work in (now, then(False), then(True)):
        reset(room)
        results.append(start(work, room.log).value)
    reset(room)
    told = results[0][1]
    assert not any(asked.error for asked in told.values()), told
    assert HIDDEN in {uri for _, uri, _ in told["hybrid"].hits}
    for label in ("the crew", "the crew, in the kept snapshot"):
        assert told[label].hits and HIDDEN not in {uri for _, uri, _ in told[label].hits}
    assert all(PURGED not in {uri for _, uri, _ in asked.hits} for asked in told.values())
    return Healthy(told, results[0][0], results[1], results[2])


def reset(room: Room) -> None:
    """Make lake and corpus again what they were."""
    room.reset()
    shutil.rmtree(room.docs)
    shutil.copytree(room.path / "docs before", room.docs, symlinks=True, copy_function=shutil.copy2)


# --- the trial ----------------------------------------------------------------------------------------------------


def attempt(room: Room, kind: Kind, damage: str, seed: int, old: str, healthy: Healthy) -> DamageTrial:
    """Damage a file, and see."""
    problems: list[str] = []

    def damaged() -> str:
        reset(room)
        return harm(room, kind, damage, seed)

    def readers() -> tuple[dict[str, Asked], str, Said]:
        enter()
        told, config = ask(room, old), room.config({})
        try:
            stored = contents(room.lake, config, answer(room.lake, config)).rows if kind.foreign else ""
        except Exception:
            stored = "unreadable"
        return told, stored, room.command("doctor", "--json")

    path = damaged()
    told, stored, doctor = start(readers, room.log).value
    verdicts = {label: judge(told[label], healthy.told[label]) for label in QUESTIONS}
    problems += [f"{label}: {why}" for label, (verdict, why) in verdicts.items() if verdict == "WRONG"]
    worst = max((verdict for verdict, _ in verdicts.values()), key=_ORDER.index)
    if worst == "another ranking" and not kind.unseen:
        problems.append("a reader got another ranking without a word")
    found, remedies = _findings(doctor)
    if not found:
        harmless = kind.disposable or damage in kind.silent or (kind.foreign and stored == healthy.contents.rows)
        if worst != "the same" or not harmless:
            problems.append(f"the doctor finds nothing (readers: {worst})")
    elif any(not re.search(r"`glossator |restore it|delete |wait", remedy) for remedy in remedies):
        problems.append(f"the doctor names no way on: {doctor.out or doctor.err}")
    remedy = "nothing" if not found else _mend(room, path, remedies, healthy, old, problems)
    runs = []
    for edited, (then, answers) in ((False, healthy.again), (True, healthy.edited)):
        damaged()

        def work(edited: bool = edited) -> tuple[Said, tuple[Contents, Mapping[str, Asked]] | str]:
            enter()
            said = _index(room, edited=edited)
            try:
                return said, _look(room, old)
            except GlossatorError as error:
                return said, str(error)

        said, after = start(work, room.log).value
        label = "index after an edit" if edited else "index"
        runs.append(_judge_run(label, said, after, then, answers, kind, problems, bool(found), damage in kind.silent))
    return DamageTrial(
        kind.name, damage, path, worst, "found" if found else "nothing", remedy, (runs[0], runs[1]), tuple(problems)
    )


_ORDER = ("the same", "the same, with a note", "an error", "another ranking", "WRONG")


def _findings(doctor: Said) -> tuple[bool, list[str]]:
    """Return whether the doctor found something, and the remedies that it names."""
    if doctor.code == 0:
        return False, []
    if not doctor.out.strip():
        return True, [line.partition(" -> ")[2] for line in doctor.err.strip().splitlines()]
    return True, [finding["remedy"] for finding in json.loads(doctor.out) if not finding["ok"]]


def _mend(
    room: Room, path: str, remedies: list[str], healthy: Healthy, old: str, problems: list[str], tries: int = 3
) -> str:
    """Do what the doctor says until it is content."""
    done: list[str] = []
    for _ in range(tries):
        text = "; ".join(remedies)
        done.append(_follow(room, path, text))

        def work(text: str = text) -> tuple[Said, tuple[Contents, Mapping[str, Asked]] | str]:
            enter()
            for command in _commands(text):
                room.command(*(str(room.path / command[-1]) if word == "FOLDER" else word for word in command))
            said = room.command("doctor", "--json")
            try:
                return said, _look(room, old)
            except GlossatorError as error:
                return said, str(error)

        said, after = start(work, room.log).value
        found, remedies = _findings(said)
        if not found:
            break
    how = ", then ".join(done)
    if found:
        problems.append(f"{how} does not mend it: {remedies}"[:600])
    elif isinstance(after, str):
        problems.append(f"after {how} a look ends with {after}")
    else:
        problems += _differences(f"after {how}", after, healthy.contents, healthy.told)
    return how


def _commands(remedy: str) -> list[list[str]]:
    if "doctor --repair" in remedy:
        commands = [["doctor", "--repair"]]
        return [*commands, ["index"]] if "then `glossator index`" in remedy else commands
    named = re.search(r"`glossator index FOLDER --source (\w+)`", remedy)
    if named:
        return [["index", "FOLDER", "--source", named[1]]]
    return [["index"]] if "`glossator index" in remedy else []


def _follow(room: Room, path: str, remedy: str) -> str:
    """Do by hand what a remedy says beside commands; return the remedy in short."""
    commands = [" ".join(command) for command in _commands(remedy)]
    target = room.root / path
    if "doctor --repair" in remedy:
        return " and ".join(commands)
    if re.search(r"delete (it|that file)", remedy) and "restore it" not in remedy:
        target.unlink(missing_ok=True)
        return " and ".join(["delete it", *commands])
    if "restore it" in remedy:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(room.before / path, target)
        return "restore it from a copy"
    return " and ".join(commands) or "nothing"


def _judge_run(
    label: str,
    said: Said,
    after: tuple[Contents, Mapping[str, Asked]] | str,
    wanted: Contents,
    answers: Mapping[str, Asked],
    kind: Kind,
    problems: list[str],
    found: bool,
    silent: bool,
) -> str:
    if said.code not in {0, 3}:
        complaint = said.err.strip()
        if "unexpected" in complaint or " -> " not in complaint:
            problems.append(f"{label}: {complaint}")
        return "refused with words"
    if isinstance(after, str):
        # Nothing had changed: what readers are told is told by the doctor too.
        if label != "index" or not found:
            problems.append(f"{label} ended well, and then: {after}")
        return "ended well; the damage stays, as the doctor says"
    before = len(problems)
    problems += _differences(label, after, wanted, answers, found=found, kind=kind, silent=silent)
    return "the right contents" if len(problems) == before else "WRONG"


def _differences(
    label: str,
    after: tuple[Contents, Mapping[str, Asked]],
    wanted: Contents,
    answers: Mapping[str, Asked],
    *,
    found: bool = False,
    kind: Kind | None = None,
    silent: bool = False,
) -> list[str]:
    """Return how a lake differs from what it should be.

    Args:
        found, kind: damage is there still, and the doctor knows: errors are right, wrong answers are not.
        silent: what is kept may differ, as nobody can know.
    """
    published, told = after
    names = ("snapshot", "hold", "rows", "bm25", "tombstones", "retained")
    fields = [name for name in names if getattr(published, name) != getattr(wanted, name)]
    if kind is not None and found:
        fields = [name for name in fields if name not in {"rows", "retained"}]
    fields = [name for name in fields if not (silent and name == "retained")]
    problems = [f"{label}: {name} differs" for name in fields]
    for question, asked in told.items():
        verdict, why = judge(asked, answers[question])
        good = {"the same"} if kind is None else {"the same", "the same, with a note"}
        if kind is not None and found:
            good |= {"an error"} | ({"another ranking"} if kind.unseen else set())
        if verdict not in good:
            problems.append(f"{label}: {question}: {verdict} {why}")
    return problems
