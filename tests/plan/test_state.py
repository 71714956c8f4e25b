"""What is remembered between runs is disposable: damaged, it is made anew, or one line says what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.errors import UsageError
from tasks.lake.lake import Corrupt
from tasks.plan.planner import workspace
from tasks.plan.quarantine import KEY, read_quarantine
from tasks.plan.registry import list_sources, resolve_source
from tests.fixtures import lake_beside, made_cleanly, make_config, make_corpus, plan_of, published, run

DAMAGES: list[Callable[[bytes], bytes]] = [lambda _: b"", lambda data: data[: len(data) // 2], lambda _: b"[1, {}]"]


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    return make_corpus(tmp_path / "docs", {"a.md": "# A\n\nOne.\n", "b.md": "# B\n\nTwo.\n", "bad.pdf": b"no PDF"})


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("folder", ["hints", "models", "vectors", "plans", "newest/load"])
def test_damaged_state_is_made_anew(docs: Path, folder: str, damage: Callable[[bytes], bytes]) -> None:
    run(docs)
    state = lake_beside(docs).storage.local("state") / folder
    files = sorted(state.iterdir())
    assert files
    for file in files:
        file.write_bytes(damage(file.read_bytes()))
    assert plan_of(docs).nothing_to_do
    (docs / "b.md").write_text("# B\n\nThree.\n")
    assert run(docs).chunks_embedded == 1
    assert published(lake_beside(docs)).id == made_cleanly(docs).id


def test_a_damaged_receipt_of_vectors_is_no_receipt(docs: Path) -> None:
    run(docs)
    lake = lake_beside(docs)
    (receipt,) = lake.storage.local("state/vectors").iterdir()
    receipt.write_text('{"catalog": 5}')
    for key in ("flips/1.json", "copies/flip.json"):  # as after a kill before the flip
        lake.storage.delete(key)
    assert run(docs).flip == 1
    assert isinstance(json.loads(receipt.read_text())["catalog"], str)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_quarantine_says_so_in_one_line(docs: Path, damage: Callable[[bytes], bytes]) -> None:
    run(docs)
    lake = lake_beside(docs)
    lake.storage.write(KEY, damage(lake.storage.read(KEY)))
    with pytest.raises(Corrupt, match=r"failures\.json is damaged .* -> delete that file") as error:
        read_quarantine(lake)
    assert "\n" not in str(error.value)
    lake.storage.delete(KEY)
    assert [failure.uri for failure in run(docs).failed] == ["bad.pdf"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_record_of_a_source_says_how_to_write_it_again(docs: Path, damage: Callable[[bytes], bytes]) -> None:
    run(docs)
    lake = lake_beside(docs)
    lake.storage.write("sources/docs.json", damage(lake.storage.read("sources/docs.json")))
    with pytest.raises(Corrupt, match=r"docs\.json is damaged .* -> delete it .* --source docs") as error:
        list_sources(lake)
    assert "\n" not in str(error.value)
    lake.storage.delete("sources/docs.json")
    (docs / "a.md").unlink()
    counts = run(docs, source="docs").documents
    assert (counts.unchanged, counts.deleted) == (1, 1)
    assert [spec.name for spec in list_sources(lake)] == ["docs"]


def test_a_folder_whose_name_is_not_utf8_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "caf\udce9"
    folder.mkdir()
    with pytest.raises(UsageError, match="not valid UTF-8"):
        resolve_source(lake_beside(folder), str(folder), None)


def test_a_window_without_room_for_a_chunk_names_what_takes_it(docs: Path) -> None:
    with pytest.raises(UsageError, match=r"shorten embed\.passage_prompt"):
        workspace(lake_beside(docs), make_config(f"embed.passage_prompt={'x ' * 300}"))
