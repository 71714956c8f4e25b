"""Configuration: layers, messages that name layer and key, and digests of exactly what decides the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schemas.config import Config, Section, read_config
from schemas.errors import ExitCode, UsageError
from schemas.invalid import given

SECTIONS: list[type[Section]] = [
    info.annotation
    for info in Config.model_fields.values()
    if isinstance(info.annotation, type) and issubclass(info.annotation, Section)
]
FIELDS = [(section, name) for section in SECTIONS for name in section.model_fields]


def problems(**layers: Any) -> list[str]:
    with pytest.raises(UsageError) as caught:
        read_config(**{"environ": {}, **layers})
    assert caught.value.exit_code == ExitCode.USAGE
    return str(caught.value).split("\n")


def toml(folder: Path, text: str) -> Path:
    path = folder / "glossator.toml"
    path.write_text(text, encoding="utf-8")
    return path


def other_value(default: Any) -> Any:
    match default:
        case bool():
            return not default
        case int() | float():
            return default + 1
        case str() | tuple():
            return default + type(default)("x")
    raise AssertionError(f"say here what another value of {default!r} is")


def test_without_layers_everything_has_a_default() -> None:
    assert read_config(environ={}) == Config()


def test_later_layers_win_over_earlier_ones(tmp_path: Path) -> None:
    file = toml(tmp_path, "[chunk]\nchild_tokens = 100\nparent_tokens = 1000\n[bm25]\nk1 = 2.0\n")
    environ = {"GLOSSATOR__CHUNK__CHILD_TOKENS": "110", "GLOSSATOR__CHUNK__PARENT_TOKENS": "1100"}
    config = read_config(file=file, environ=environ, assignments=["chunk.child_tokens=120"])
    assert (config.chunk.child_tokens, config.chunk.parent_tokens, config.bm25.k1) == (120, 1100, 2.0)


def test_the_last_of_equal_assignments_wins() -> None:
    config = read_config(environ={}, assignments=["chunk.child_tokens=100", "chunk.child_tokens=90"])
    assert config.chunk.child_tokens == 90


def test_other_variables_of_the_environment_are_left_alone() -> None:
    assert read_config(environ={"GLOSSATOR_HOME": "/x", "PATH": "/bin"}) == Config()


def test_an_unknown_key_names_its_layer_and_itself(tmp_path: Path) -> None:
    file = toml(tmp_path, "[chunk]\nchild_token = 100\n")
    found = problems(
        file=file, environ={"GLOSSATOR__EMBED__MODELS": "x"}, assignments=["bm25.k=1", "collections=a", "zzz=1"]
    )
    near = [problem.partition(" or ")[0].removesuffix("?") for problem in found]
    assert sorted(near) == sorted(
        [
            f"{file}: chunk.child_token: unknown key -> did you mean chunk.child_tokens",
            "environment: embed.models: unknown key -> did you mean embed.model",
            "--set: bm25.k: unknown key -> did you mean bm25.k1",
            "--set: collections: unknown key -> did you mean collection",
            "--set: zzz: unknown key",
        ]
    )


def test_each_wrong_value_has_one_line_with_layer_and_key(tmp_path: Path) -> None:
    file = toml(tmp_path, '[chunk]\nchild_tokens = "many"\n[bm25]\nb = 3\n')
    found = problems(file=file, assignments=["embed.precision=fp8", "collection=Big Data"])
    assert len(found) == 4
    for line, beginning in zip(
        sorted(found),
        ("--set: collection: ", "--set: embed.precision: ", f"{file}: bm25.b: ", f"{file}: chunk.child_tokens: "),
        strict=True,
    ):
        assert line.startswith(beginning)
        assert len(line) > len(beginning)


def test_a_wrong_item_of_a_list_names_its_layer() -> None:
    assert problems(assignments=["load.ignore=[1]"])[0].startswith("--set: load.ignore.0: ")


def test_a_value_where_a_section_belongs_is_said() -> None:
    assert problems(assignments=["chunk=12"])[0].startswith("--set: chunk: ")


@pytest.mark.parametrize("order", [1, -1])
def test_a_section_set_as_a_whole_and_by_key_is_refused_in_either_order(order: int) -> None:
    assignments = ['embed={"model": "hash:8"}', "embed.query_prompt=q"][::order]
    try:
        config = read_config(environ={}, assignments=assignments)
    except UsageError as error:
        assert "embed" in str(error)
    else:
        assert (config.embed.model, config.embed.query_prompt) == ("hash:8", "q")


def test_a_word_that_is_no_assignment_is_refused_with_an_example() -> None:
    assert "KEY=VALUE" in problems(assignments=["chunk.child_tokens"])[0]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_none_are_refused(value: str) -> None:
    assert problems(assignments=[f"bm25.k1={value}"])[0].startswith("--set: bm25.k1: ")


@pytest.mark.parametrize("text", ["[chunk\n", "a = \xff\n".encode("latin-1")])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "glossator.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    assert problems(file=path)[0].startswith(f"{path} is not valid TOML")


def test_a_file_that_is_not_there_or_a_folder_is_named(tmp_path: Path) -> None:
    assert str(tmp_path / "no.toml") in problems(file=tmp_path / "no.toml")[0]
    assert str(tmp_path) in problems(file=tmp_path)[0]


@pytest.mark.parametrize(("section", "name"), FIELDS, ids=[f"{s.__name__}.{n}" for s, n in FIELDS])
def test_operational_fields_are_in_no_digest_and_all_others_are(section: type[Section], name: str) -> None:
    """cocoindex-code#285: what decides the result and is missing from the key leaves stale chunks."""
    changed = section().model_copy(update={name: other_value(section.model_fields[name].default)})
    extra = section.model_fields[name].json_schema_extra
    is_operational = isinstance(extra, dict) and extra.get("operational") is True
    assert (changed.result_digest() == section().result_digest()) is is_operational


def test_every_field_has_a_description() -> None:
    bare = [f"{section.__name__}.{name}" for section, name in FIELDS if not section.model_fields[name].description]
    assert bare == []
    assert Config.model_fields["collection"].description


def test_a_config_cannot_be_changed_after_it_was_read() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().chunk.child_tokens = 5  # type: ignore[misc]


@pytest.mark.parametrize("value", ["9" * 5_000, "[" * 100_000])
def test_a_value_that_no_reader_takes_is_a_wrong_value(value: str) -> None:
    with pytest.raises(UsageError, match=r"--set: load\.max_bytes: "):
        read_config(environ={}, assignments=[f"load.max_bytes={value}"])


@pytest.mark.parametrize(
    ("assignment", "told"),
    [
        (
            "chunk.child_tokens=many",
            'chunk.child_tokens: Input should be a valid integer, unable to parse string as an integer; given: "many"',
        ),
        ("chunk.child_tokens=3", "chunk.child_tokens: Input should be greater than or equal to 16; given: 3"),
        ("run.runner=cron", "run.runner: Input should be 'prefect' or 'plain'; given: \"cron\""),
        ('embed.model={"token": "s3cret"}', "embed.model: Input should be a valid string; given: a table"),
        ("load.ignore.0=x", "load.ignore: Input should be a valid tuple; given: a table"),
    ],
)
def test_a_wrong_value_is_told_with_what_is_allowed(assignment: str, told: str) -> None:
    assert problems(assignments=[assignment]) == [f"--set: {told}"]


def test_a_long_value_is_cut() -> None:
    (told,) = problems(assignments=["run.workers=" + "x" * 500])
    assert len(told) < 200 and told.endswith("x…")


@pytest.mark.parametrize("name", ["token", "api_key", "password"])
def test_what_may_be_a_secret_is_never_told(name: str) -> None:
    environ = {f"GLOSSATOR__MILVUS__{name.upper()}": "s3cret"}
    with pytest.raises(UsageError) as wrong:
        read_config(environ=environ)
    assert f"milvus.{name}: unknown key" in str(wrong.value) and "s3cret" not in str(wrong.value)
    assert "s3cret" not in given(("milvus", name), "s3cret")
    assert "s3cret" not in given(("milvus", "timeout_seconds"), "https://root:s3cret@milvus:19530")
    assert given(("chunk", "child_tokens"), 3) == "3", "a size is no secret"
