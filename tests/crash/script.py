"""What the random crasher does, drawn from a seed before anything runs: edits of the corpus, commands, and delays.

Nothing that happens changes what is drawn, so that equal seeds give equal scripts.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from tests.crash.operations import paragraph

DOCUMENTS = 10
MOST_DOCUMENTS = 24
LONGEST_DELAY = 0.6
"""Seconds; about what a command takes on two idle cores, so that few kills come too late."""

INDEX = ("index", "{docs}", "--allow-deletes", "100", "--json")
COMMANDS = {
    INDEX: 12,
    ("index", "{docs}", "--allow-deletes", "100", "--migrate", "--json", "--set", "chunk.child_tokens={tokens}"): 2,
    ("maintain", "--json"): 2,
    ("doctor", "--repair", "--json"): 1,
    ("rollback", "previous", "--reason", "crash test", "--json"): 1,
}
"""Command -> how often it is drawn."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A command that is killed.

    Attributes:
        edits: made before it: file -> text, None to delete it.
        delay: seconds from its start to the kill.
        meanwhile: an edit that is made while it runs, before the kill.
    """

    edits: tuple[tuple[str, str | None], ...]
    command: tuple[str, ...]
    delay: float
    meanwhile: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Round:
    """Some commands that are killed, after which the last index runs to its end."""

    attempts: tuple[Attempt, ...]


class _Corpus:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.edition = 0
        self.files: dict[str, int] = {}
        self.next = 0

    def edits(self, count: int) -> tuple[tuple[str, str | None], ...]:
        """Draw changes: an edit, an addition, a deletion, a file that moves."""
        made: list[tuple[str, str | None]] = []
        for _ in range(count):
            kind = self.rng.choice(("edit", "edit", "add", "delete", "move"))
            if kind == "add" or len(self.files) < DOCUMENTS:
                kind = "add" if len(self.files) < MOST_DOCUMENTS else "delete"
            self.edition += 1
            made += getattr(self, f"_{kind}")()
        return tuple(made)

    def _add(self) -> list[tuple[str, str | None]]:
        self.next += 1
        name = self.rng.choice(("", "north/", "south/")) + f"gauge-{self.next}.md"
        self.files[name] = self.next
        return [(name, paragraph(self.next, self.edition))]

    def _edit(self) -> list[tuple[str, str | None]]:
        name = self._any()
        return [(name, paragraph(self.files[name], self.edition))]

    def _delete(self) -> list[tuple[str, str | None]]:
        name = self._any()
        del self.files[name]
        return [(name, None)]

    def _move(self) -> list[tuple[str, str | None]]:
        name = self._any()
        number = self.files.pop(name)
        target = f"moved/{number}-{self.edition}.md"
        self.files[target] = number
        return [(name, None), (target, paragraph(number, self.edition))]

    def _any(self) -> str:
        return self.rng.choice(sorted(self.files))


def draw(seed: int, rounds: int) -> list[Round]:
    """Return the script of a seed."""
    rng = random.Random(seed)
    corpus = _Corpus(rng)
    script = []
    for number in range(rounds):
        attempts = []
        for _ in range(rng.randint(1, 3)):
            command = rng.choices(list(COMMANDS), list(COMMANDS.values()))[0]
            tokens = str(rng.choice((40, 80, 180)))
            attempts.append(
                Attempt(
                    edits=corpus.edits(DOCUMENTS if number == 0 and not attempts else rng.randint(1, 3)),
                    command=tuple(word.replace("{tokens}", tokens) for word in command),
                    delay=round(rng.uniform(0.0, LONGEST_DELAY), 3),
                    meanwhile=corpus.edits(1) if rng.random() < 0.3 else (),
                )
            )
        script.append(Round(tuple(attempts)))
    return script


def apply(edits: tuple[tuple[str, str | None], ...], folder: Path) -> None:
    """Make the changes in a folder."""
    for name, text in edits:
        path = folder / name
        if text is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
