"""What the progress of a run looks like, drawn on a terminal that is a string."""

from __future__ import annotations

import io
import re

from rich.cells import cell_len
from rich.console import Console

from flows.bars import Bars
from schemas.snapshot import PartRef
from tasks.progress import advance, building, expect, tick


def last_frame(drawn: str) -> list[str]:
    """The lines of the last time that the bars were drawn, without colours and movements of the cursor."""
    frame = re.split(r"\r\x1b\[2K(?:\x1b\[1A\x1b\[2K)*", drawn)[-1]
    return [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line).strip("\r") for line in frame.splitlines()]


def draw(shards: int, *, terminal: bool) -> tuple[str, str]:
    """Draw a run of which ``shards`` are to be built and two begin; return what stands there before and at the end."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=terminal, width=80, height=24, _environ={"TERM": "xterm"})
    with Bars(console, shards) as bars:
        for _ in range(2):
            expect("embed", 60_000)
            tick("embed", 50_000)
        bars._progress.refresh()
        before = screen.getvalue()
        for _ in range(2):
            tick("embed", 10_000)
        with building("vectors"):
            pass
    return before, screen.getvalue()


def test_a_total_that_is_an_estimate_is_marked() -> None:
    line = next(line for line in last_frame(draw(3, terminal=True)[0]) if "embed" in line)
    assert re.search(r"100,000/~180,000 +texts", line)


def test_a_known_total_is_not_marked_and_lines_fit_80_columns() -> None:
    before, after = draw(2, terminal=True)
    lines = [line for line in last_frame(before) + last_frame(after) if line.strip()]
    assert any(re.search(r"embed .*100,000/120,000 +texts", line) for line in lines)
    assert any(re.search(r"✓ embed .*120,000/120,000 +texts", line) for line in lines)
    assert any(re.search(r"✓ vectors .* s$", line.rstrip()) for line in lines)
    assert max(cell_len(line) for line in lines) <= 80


def test_a_shard_whose_part_is_there_is_not_waited_for() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, height=24, _environ={"TERM": "xterm"})
    with Bars(console, 2) as bars:
        expect("chunk", 10)
        advance("chunk", PartRef(stage="chunk", shard=1, key="k", config="c", reused=True), 0.0)
        tick("chunk", 5)
        bars._progress.refresh()
    assert any(re.search(r"chunk .* 5/10 documents", line) for line in last_frame(screen.getvalue()))


def test_nothing_is_drawn_where_there_is_no_terminal() -> None:
    assert draw(2, terminal=False) == ("", "")
