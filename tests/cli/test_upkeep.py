"""What keeps an index well: `doctor --repair`, a weekly reading of all files, and a plan that names documents."""

from __future__ import annotations

import re
import shutil
import time
import tomllib
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.cli.test_commands import columns

FAILED, REFUSED = 1, 4
DAY_NS = 86_400 * 10**9


# --- repair -----------------------------------------------------------------------------------------------------------


def test_lost_stores_come_back_under_a_hold(home: Any) -> None:
    (home.docs / "more.md").write_text("# Dredging\n\nThe harbour is dredged in May.\n")
    home.call("index")
    home.call("rollback", "--reason", "wrong import")
    before = home.published()
    for kind in ("passages", "catalog", "bm25"):
        shutil.rmtree(home.lake / kind)
    shutil.rmtree(home.lake / "milvus.db")
    told = home.run("search", "tide gauge", "--mode", "bm25")
    assert told.code == FAILED and "glossator doctor --repair" in told.complaint
    assert home.run("index").code == REFUSED, "an index would not help: publishing is held"
    assert home.run("doctor").code == FAILED
    done = home.run("doctor", "--repair")
    assert done.code == 0, done.out
    assert "Repaired: the same snapshots, and nothing was embedded." in done.out
    assert re.search(r"^Kept snapshot [0-9a-f]{12}: mended$", done.out, re.MULTILINE)
    lines = [line for line in done.out.splitlines() if str(home.path) not in line]
    assert [line for line in lines if columns(line) > 80 or line != line.rstrip()] == []
    assert home.published() == before
    assert home.call("status", "--json").json["hold"] is True
    assert home.run("doctor").code == 0
    home.call("resume")
    assert home.run("index", "--json").json["chunks_embedded"] == 0


def test_a_healthy_index_needs_no_repair(indexed: Any) -> None:
    done = indexed.run("doctor", "--repair")
    assert done.code == 0
    assert done.out.endswith("Nothing to repair.\n")
    (report,) = indexed.run("doctor", "--repair", "--json").json
    assert report["before"] == report["after"] and report["rebuilt"] == report["problems"] == []


def test_what_cannot_be_repaired_says_what_to_do(home: Any) -> None:
    next((home.lake / "parts" / "load").iterdir()).unlink()
    done = home.run("doctor", "--repair")
    assert done.code == FAILED
    assert "1 of 5 parts are missing" in done.out
    assert "run `glossator index` again: what is missing is computed anew" in " ".join(done.out.split())
    assert home.run("index").code == 0
    assert home.run("doctor").code == 0


# --- the weekly reading -----------------------------------------------------------------------------------------------


def changed_behind_its_hint(home: Any, name: str, *, read_days_ago: float) -> None:
    """Change a file, and write the hints as if all files had looked like that when they were read, days ago."""
    home.call("index")
    path: Path = home.docs / name
    path.write_text(path.read_text().replace("tide", "tyde"))
    stat = path.stat()
    key = home.lake / "state" / "hints" / "docs.arrow"
    hints = pl.read_ipc(key.read_bytes())
    now = {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "ctime_ns": stat.st_ctime_ns, "inode": stat.st_ino}
    columns = [
        pl.when(pl.col("uri") == name).then(pl.lit(value, hints.schema[column])).otherwise(column).alias(column)
        for column, value in now.items()
    ]
    read = pl.lit(time.time_ns() - round(read_days_ago * DAY_NS), hints.schema["seen_ns"]).alias("seen_ns")
    hints.with_columns(*columns, read).write_ipc(key, compression="uncompressed")


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a test are younger than the days for which their hints are to stand."""
    monkeypatch.setattr("tasks.plan.listing.RACY_NS", -(10**18))


@pytest.mark.usefixtures("trusted")
def test_maintain_has_files_read_again_that_were_not_for_a_week(home: Any) -> None:
    changed_behind_its_hint(home, "support/glossary.md", read_days_ago=7.1)
    assert home.call("index", "--json").json["published"] is False, "size, times and inode say that nothing changed"
    shown = home.call("maintain", "--dry-run")
    assert "31 files were read last more than 7 days ago, and would be read again" in shown.out
    assert home.call("index", "--dry-run", "--json").json["sources"][0]["hashed"] == 0
    assert home.call("maintain", "--json").json["hints"]["count"] == 31
    report = home.call("index", "--json").json
    assert report["documents"]["changed"] == 1
    assert home.call("maintain", "--json").json["hints"]["count"] == 0, "the next reading is due in a week"


@pytest.mark.usefixtures("trusted")
def test_maintain_believes_what_was_read_this_week(home: Any) -> None:
    changed_behind_its_hint(home, "support/glossary.md", read_days_ago=6.9)
    assert home.call("maintain", "--json").json["hints"]["count"] == 0
    assert home.call("index", "--json").json["published"] is False


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_a_plan_names_the_first_documents_of_each_kind_and_json_all(home: Any) -> None:
    for number in range(42):
        (home.docs / f"added-{number:02}.md").write_text(f"# Berth {number}\n\nDredged in month {number}.\n")
    (home.docs / "support" / "glossary.md").unlink()
    (home.docs / "support" / "pricing.html").rename(home.docs / "support" / f"{'long name ' * 9}.html")
    shown = home.call("index", "--dry-run")
    assert shown.code == 0
    lines = shown.out.splitlines()
    assert [line for line in lines if line.startswith("    + ")] == [f"    + docs/added-{n:02}.md" for n in range(5)]
    assert "      and 37 more added" in lines
    assert "    > docs/support/pricing.html → support/long name" in shown.out
    assert "    - docs/support/glossary.md" in lines
    assert "      all of them: glossator index --dry-run --json" in lines
    shown_lines = [line for line in lines if str(home.path) not in line]
    assert [line for line in shown_lines if columns(line) > 80 or line != line.rstrip()] == []
    changes = home.call("index", "--dry-run", "--json").json["changes"]
    assert [change["change"] for change in changes] == ["added"] * 42 + ["renamed", "deleted"]
    assert changes[42]["was"] == "support/pricing.html"


def test_a_plan_shows_what_would_be_refused(home: Any) -> None:
    for path in sorted(home.docs.rglob("*.md"))[:12]:
        path.unlink()
    shown = home.call("index", "--dry-run")
    assert shown.code == REFUSED
    assert "  * refused: 12 of 31 documents of source 'docs' are gone" in shown.out
    assert [line for line in shown.out.splitlines() if columns(line) > 80] == []
    assert "and 7 more deleted" in shown.out
    planned = home.call("index", "--dry-run", "--json")
    assert (planned.code, len(planned.json["changes"])) == (REFUSED, 12)
    assert "--allow-deletes 12" in planned.json["refused"]
    assert "source 'docs'" in home.call("index").complaint
    assert home.call("index", "--allow-deletes", "12", "--json").json["documents"]["deleted"] == 12


def test_a_plan_to_migrate_says_what_is_redone_of_which_settings_and_so_does_the_report(home: Any) -> None:
    change = ("--set", "chunk.child_tokens=90", "--set", "embed.model=hash:128")
    (home.docs / "support" / "glossary.md").write_text("# Glossary\n\nTide: what the moon does.\n")
    looked = home.call("index", *change, "--dry-run")
    assert looked.code == REFUSED
    assert "1 changed, 30 unchanged" in looked.out
    told = " ".join(looked.out.split())
    redone = "* 31 documents redone from chunk on (chunks, contexts, embeddings, BM25 terms, passages), since "
    settings = "chunk.child_tokens 180 → 90, embed.model hash:384 → hash:128"
    assert redone + settings in told
    assert f"* refused: settings changed ({settings}): 30 unchanged documents would be redone -> run again" in told
    assert [line for line in looked.out.splitlines() if columns(line) > 80 or line != line.rstrip()] == []
    planned = home.call("index", *change, "--dry-run", "--json")
    assert (planned.code, planned.json["redone"]["documents"]) == (REFUSED, 31)
    assert home.call("index", *change, "--migrate", "--dry-run").code == 0
    done = home.run("index", *change, "--migrate")
    assert done.code == 0 and redone + settings in " ".join(done.out.split())


def test_files_of_no_known_type_are_named(home: Any) -> None:
    for name in ("Makefile_", "a.xyz", "b.xyz", "c.xyz"):
        (home.docs / name).write_text("words")
    shown = " ".join(home.call("index", "--dry-run").out.split())
    assert (
        "* not indexed, type not supported: 1 (no ending), 3 .xyz: docs/Makefile_, docs/a.xyz, docs/b.xyz, …" in shown
    )


def test_index_says_what_it_built_anew_whether_or_not_anything_is_published(home: Any) -> None:
    (part,) = (home.lake / "parts" / "load").iterdir()
    key = f"parts/load/{part.name}"
    part.unlink()
    shown = home.call("index").out
    assert shown.startswith("Published snapshot ")
    assert f"builtanew,sincemissingordamaged:{key}" in "".join(shown.split())
    part.unlink()
    (home.docs / "bad.md").write_bytes(bytes(range(1, 9)) * 40)
    shown = home.call("index").out
    assert shown.startswith("Mended snapshot ") and "Nothing to do" not in shown
    assert f"builtanew,sincemissingordamaged:{key}" in "".join(shown.split())
    assert home.call("index").out.startswith("Nothing to do: snapshot ")


def test_an_index_without_the_records_of_its_sources_names_them(home: Any) -> None:
    (home.lake / "sources" / "docs.json").unlink()
    done = home.call("index")
    assert done.code == 2
    assert "has published documents of docs, and no folder is recorded" in done.complaint
    assert "run `glossator index FOLDER --source docs`" in done.complaint


def test_the_seconds_of_index_are_those_of_the_whole_command(home: Any) -> None:
    done = home.call("index", "--json")
    assert done.seconds - 0.5 < done.json["seconds"]["total"] <= done.seconds


def test_the_version_is_told_without_a_lake_or_its_libraries(empty: Any) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    done = empty.python(
        "import sys, glossator\nsys.argv = ['glossator', '--version']\n"
        "try:\n    glossator.main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "assert not {'polars', 'prefect', 'torch', 'pymilvus'} & set(sys.modules)\n"
    )
    assert (done.code, done.err) == (0, "")
    assert re.fullmatch(rf"glossator {re.escape(project['version'])}( \(not installed: .*\))?\n", done.out)
