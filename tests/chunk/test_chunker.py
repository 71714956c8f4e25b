"""Chunks of small documents, judged by hand; each public bug report that chunking answers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import get_args

import pytest

from schemas.config import ChunkConfig, ContextConfig
from schemas.documents import ChunkedDocument, DocumentType
from tasks.chunk.chunker import chunk_document
from tasks.chunk.token_index import TokenIndex
from tasks.contextualize.structural import structural_context, table_headers
from tasks.embed.model import ModelFiles, locate_model
from tasks.embed.tokenizer import ModelTokenizer, Tokenizer, open_tokenizer
from tests.shared import SHARED

MINILM = open_tokenizer(locate_model("all-MiniLM-L6-v2"))
WORDS = open_tokenizer(locate_model("hash:384"))
SMALL = ChunkConfig(child_tokens=32, parent_tokens=64)


def chunk(
    text: str,
    type_: DocumentType = "markdown",
    *,
    config: ChunkConfig = SMALL,
    syntax: str | None = None,
    tokenizer: Tokenizer = WORDS,
) -> ChunkedDocument:
    return chunk_document(text, type_, syntax, tokenizer, config)


def bodies(text: str, chunked: ChunkedDocument) -> list[str]:
    return [text[child.start : child.end] for child in chunked.children]


def words(count: int, word: str = "word") -> str:
    """Return a sentence of ``count`` tokens."""
    return " ".join([word] * (count - 1)) + "."


# Headings and sections


def test_a_heading_begins_the_first_child_of_its_section() -> None:
    text = f"# One\n\n{words(20)}\n\n{words(20)}\n\n## Two\n\n{words(5)}\n"
    chunked = chunk(text)
    assert [body.split()[:2] for body in bodies(text, chunked)] == [["#", "One"], ["word", "word"], ["##", "Two"]]
    assert [child.breadcrumb for child in chunked.children] == [("One",), ("One",), ("One", "Two")]
    assert [child.level for child in chunked.children] == [1, 1, 2]


def test_text_before_the_first_heading_is_kept() -> None:
    """haystack PR12762: text before the first heading is lost."""
    text = "Preamble.\n\n# One\n\nBody.\n"
    chunked = chunk(text)
    assert bodies(text, chunked) == ["Preamble.", "# One\n\nBody."]
    assert (chunked.children[0].breadcrumb, chunked.children[0].level) == ((), 0)


def test_a_document_of_headings_only_is_one_chunk() -> None:
    """haystack PR12762: heading-only documents vanish."""
    text = "# One\n\n## Two\n\n# Three\n"
    assert bodies(text, chunk(text)) == [text.strip()]


def test_a_heading_without_body_goes_with_the_next_section() -> None:
    text = "# One\n\n## Empty\n\n## Two\n\nBody.\n\n# Last\n"
    chunked = chunk(text)
    assert bodies(text, chunked) == [text.strip()]
    assert chunked.children[0].breadcrumb == ("One", "Two")


def test_a_rule_is_no_body() -> None:
    text = "# One\n\n---\n\n## Two\n\nBody.\n"
    assert bodies(text, chunk(text)) == [text.strip()]


def test_a_heading_longer_than_a_child_loses_no_text() -> None:
    """docling-core#327: a chunk whose headings exceed the token budget is dropped."""
    text = f"# {words(80, 'long')}\n\nBody of it.\n"
    chunked = chunk(text)
    assert "".join(bodies(text, chunked)).replace(" ", "").replace("\n", "") == text.replace(" ", "").replace("\n", "")
    assert bodies(text, chunked)[-1].endswith("Body of it.")


def test_a_skipped_level_is_no_level_in_the_breadcrumb() -> None:
    text = "# A\n\na\n\n#### B\n\nb\n\n## C\n\nc\n"
    assert [child.breadcrumb for child in chunk(text).children] == [("A",), ("A", "B"), ("A", "C")]


def test_plain_text_is_not_read_as_markdown() -> None:
    text = "# a comment\n\n| a | b |\n|---|---|\n"
    chunked = chunk(text, "text")
    assert [(child.breadcrumb, child.kind) for child in chunked.children] == [((), "prose")]


@pytest.mark.parametrize("type_", get_args(DocumentType))
def test_white_space_alone_has_no_chunks(type_: DocumentType) -> None:
    assert chunk(" \n\t\n\u3000", type_) == ChunkedDocument(parents=(), children=(), parent_of=())


# Packing and cutting


def test_neighbouring_paragraphs_share_a_child() -> None:
    text = "\n\n".join([words(10, "a"), words(10, "b"), words(10, "c"), words(10, "d"), words(10, "e")])
    assert [set(b.replace(".", "").split()) for b in bodies(text, chunk(text))] == [{"a", "b", "c"}, {"d", "e"}]


def test_no_crumb_is_left_at_the_end() -> None:
    text = f"{words(16, 'a')}\n\n{words(15, 'b')}\n\nend.\n"
    assert [WORDS.count(body) for body in bodies(text, chunk(text))] == [16, 17]


def test_an_announcement_stays_with_what_it_announces() -> None:
    text = f"{words(20, 'a')}\n\nFor example:\n\n```\n{words(20, 'b')}\n```\n"
    assert bodies(text, chunk(text))[1].startswith("For example:")


def test_prose_is_cut_at_sentence_ends() -> None:
    text = " ".join(words(9, "abc") for _ in range(10))
    found = bodies(text, chunk(text))
    assert len(found) == 3 or len(found) == 4
    assert all(body.endswith(".") and body.startswith("abc") for body in found)


def test_chinese_is_cut_at_sentence_ends() -> None:
    text = "这是一个很长的句子。" * 20
    found = bodies(text, chunk(text, tokenizer=MINILM))
    assert "".join(found) == text
    assert all(body.endswith("。") for body in found)


def test_code_is_cut_at_blank_lines_before_what_is_not_indented() -> None:
    functions = [f"def f{i}():\n    a = 1\n\n    return a + {i}\n" for i in range(6)]
    text = "```python\n" + "\n".join(functions) + "```\n"
    chunked = chunk(text)
    assert len(chunked.children) > 1
    assert all(body.startswith("def f") for body in bodies(text, chunked)[1:])
    assert {child.kind for child in chunked.children} == {"code"}


def test_a_list_is_cut_between_items() -> None:
    text = "".join(f"- item {i}:\n  {words(6)} {words(5)}\n" for i in range(8))
    found = chunk(text)
    assert len(found.children) > 2
    assert all(body.startswith("- item") for body in bodies(text, found))
    assert {child.kind for child in found.children} == {"list"}


def test_a_table_is_cut_between_rows_and_its_header_is_told() -> None:
    """docling#3428: a table is cut without its header row."""
    text = "# T\n\n| Option | Default |\n|:--|--:|\n" + "".join(f"| option {i} | value {i} |\n" for i in range(20))
    chunked = chunk(text)
    found = bodies(text, chunked)
    assert len(found) > 2
    assert all(body.startswith("| option") and body.endswith("|") for body in found[1:])
    headers = table_headers(text, chunked.children)
    assert headers == [None] + ["Option | Default"] * (len(found) - 1)
    context = structural_context(None, chunked.children[1], found[1], (), WORDS, 64, columns=headers[1])
    assert context == "T\nColumns: Option | Default"


def test_a_cut_never_parts_a_letter_from_its_accent() -> None:
    text = "e\u0301" * 2_000
    found = bodies(text, chunk(text))
    assert len(found) > 10
    assert not any(body.startswith("\u0301") for body in found)


@pytest.mark.parametrize("text", ["x" * 5_000_000, "xy " * 1_700_000, "中" * 300_000], ids=["one word", "words", "zh"])
def test_a_huge_line_ends_and_takes_linear_time(text: str) -> None:
    """litellm#38980, mempalace#2056: chunking that never ends."""
    begin = time.process_time()
    chunked = chunk(text, config=ChunkConfig())
    seconds = time.process_time() - begin
    assert max(child.end - child.start for child in chunked.children) <= 8 * 180
    assert "".join(bodies(text, chunked)).replace(" ", "") == text.replace(" ", "")
    assert seconds < 15


@pytest.mark.parametrize("child_tokens", [16, 17, 31, 180])
@pytest.mark.parametrize("parent_tokens", [64, 65, 1_500])
def test_every_size_ends(child_tokens: int, parent_tokens: int) -> None:
    """litellm#38980, mempalace#2056: overlap >= size (or > size/2) never ends. Here nothing overlaps."""
    text = f"# A\n\n{words(300)}\n\n## B\n\n{'z' * 4_000}\n"
    config = ChunkConfig(child_tokens=child_tokens, parent_tokens=parent_tokens)
    chunked = chunk(text, config=config)
    assert all(a.end <= b.start for a, b in zip(chunked.children, chunked.children[1:], strict=False))


def test_offsets_of_repeated_text_are_right() -> None:
    """langchain#29884: offsets are -1; chonkie#37, #116, #201: wrong or repeated offsets."""
    text = "# 标题 👩‍👩‍👧\n\n" + f"{words(20, 'same')}\n\n" * 6
    chunked = chunk(text)
    assert len({child.start for child in chunked.children}) == len(chunked.children) == 6
    assert [text[c.start : c.end].count("same") for c in chunked.children] == [19] * 6


def test_context_and_chunk_fit_the_window_of_the_model() -> None:
    """A model that truncates at 256 tokens gets 400-token chunks, and nobody is told."""
    files = locate_model("all-MiniLM-L6-v2")
    config, context = ChunkConfig(), ContextConfig()
    assert config.child_tokens + context.reserve_tokens + MINILM.special <= files.window
    text = f"# {words(100, 'internationalisation')}\n\n" + "antidisestablishmentarianism;" * 500
    for child in chunk(text, config=config, tokenizer=MINILM).children:
        body = text[child.start : child.end]
        head = structural_context("T" * 999, child, body, (), MINILM, context.reserve_tokens)
        assert MINILM.count(f"{head}\n\n{body}") + MINILM.special <= files.window


def test_an_edit_at_the_end_of_a_long_section_changes_only_its_end() -> None:
    paragraphs = [" ".join(f"w{i}x{j}" for j in range(5 + 7 * i % 23)) + "." for i in range(200)]
    text, edited = "\n\n".join(paragraphs), "\n\n".join([*paragraphs[:190], "Quite new.", *paragraphs[191:]])
    before, after = bodies(text, chunk(text)), bodies(edited, chunk(edited))
    assert len([body for body in before if body not in after]) <= 4


def test_an_edit_at_the_start_of_a_long_section_does_not_reach_far() -> None:
    paragraphs = [" ".join(f"w{i}x{j}" for j in range(3 + 7 * i % 17)) + "." for i in range(200)]
    text, edited = "\n\n".join(paragraphs), "\n\n".join(["Quite new.", *paragraphs])
    before, after = bodies(text, chunk(text)), bodies(edited, chunk(edited))
    assert len([body for body in before if body not in after]) <= len(before) // 4


# Parents


def test_a_small_document_is_one_parent() -> None:
    text = "Intro.\n\n# A\n\na\n\n## B\n\nb\n"
    chunked = chunk(text)
    assert [(text[p.start : p.end], p.breadcrumb, p.level) for p in chunked.parents] == [(text.strip(), (), 0)]
    assert chunked.parent_of == (0, 0, 0)


def test_a_parent_is_the_largest_subtree_that_fits() -> None:
    text = f"# A\n\n{words(25)}\n\n## B\n\n{words(25)}\n\n### C\n\n{words(25)}\n\n## D\n\n{words(25)}\n"
    parents = chunk(text).parents
    assert [parent.breadcrumb for parent in parents] == [("A",), ("A", "B"), ("A", "D")]
    assert "### C" in text[parents[1].start : parents[1].end]


def test_a_large_body_is_parted_between_children() -> None:
    text = "# A\n\n" + "\n\n".join(words(25, f"w{i}") for i in range(8))
    chunked = chunk(text)
    assert len(chunked.parents) == 4
    starts = {child.start for child in chunked.children}
    assert all(parent.start in starts and parent.breadcrumb == ("A",) for parent in chunked.parents)


# Code


CLIENT = '''"""Module."""

import os

LIMIT = 3


# Opens things.
@decorated
class Client:
    """Talks."""

    def connect(self):
        """Connect to the server and wait until it answers, or give up after LIMIT attempts."""
        for attempt in range(LIMIT):
            if self.try_once(attempt):
                return True
        return False

    # Says goodbye.
    @staticmethod
    async def close():
        await os.wait()
        print("closed the connection, and all is well with the world again")


def helper(x):
    return x
'''


def test_python_is_cut_between_definitions_with_their_decorators_and_comments() -> None:
    chunked = chunk(CLIENT, "code", syntax="python", config=ChunkConfig(child_tokens=48, parent_tokens=64))
    found = dict(zip([child.breadcrumb for child in chunked.children], bodies(CLIENT, chunked), strict=False))
    assert found[("Client", "close")].startswith("# Says goodbye.\n    @staticmethod")
    assert ("Client", "connect") in found and ("helper",) in found
    assert found[("Client",)].startswith("# Opens things.\n@decorated\nclass Client")
    assert chunked.definitions == ("LIMIT", "Client", "connect", "close", "helper")
    assert {child.kind for child in chunked.children} == {"code"}


def test_small_definitions_share_a_child() -> None:
    text = "".join(f"def f{i}():\n    return {i}\n\n\n" for i in range(6))
    chunked = chunk(text, "code", syntax="python")
    assert 1 < len(chunked.children) < 4
    assert all(body.startswith("def f") for body in bodies(text, chunked))


def test_a_class_that_fits_is_not_opened() -> None:
    text = "class A:\n    def f(self):\n        pass\n\n    def g(self):\n        pass\n"
    assert [child.breadcrumb for child in chunk(text, "code", syntax="python").children] == [("A",)]


@pytest.mark.parametrize("syntax", ["python", "rust", None])
def test_what_no_parser_reads_is_cut_at_unindented_lines(syntax: str | None) -> None:
    text = "\n\n".join(
        f"fn name_{i}(a: u8) {{\n    let x = {i};\n\n    call(x, a, {words(9)[:-1]})\n}}" for i in range(3)
    )
    chunked = chunk(text, "code", syntax=syntax)
    assert [child.breadcrumb for child in chunked.children] == [("name_0",), ("name_1",), ("name_2",)]
    assert chunked.definitions == ("name_0", "name_1", "name_2")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("export default async function load(x) {", "load"),
        ("pub(crate) struct Row<T> {", "Row"),
        ("impl<T> fmt::Display for cell::Grid<T> {", "Grid"),
        ("func (s *Server) Listen(port int) error {", "Listen"),
        ("int main(int argc, char **argv) {", "main"),
        ("void Shape::draw(const Canvas& c) const {", "draw"),
        ("    public static String name() {", "name"),
        ("CREATE TABLE IF NOT EXISTS users (", "users"),
        ("type Handler func(string)", "Handler"),
        ("enum class Color {", "Color"),
    ],
)
def test_names_that_a_line_defines(line: str, name: str) -> None:
    assert chunk(line, "code").definitions == (name,)


@pytest.mark.parametrize("line", ["return call(x)", "call(x);", "int x = f(y);", "// class of things", "else if (x) {"])
def test_lines_that_define_nothing(line: str) -> None:
    assert chunk(line, "code").definitions == ()


# Tokens


@pytest.mark.parametrize("kind", ["byte-level", "metaspace"])
def test_children_fit_by_other_kinds_of_tokenizers(kind: str, tmp_path: Path) -> None:
    from tokenizers import Tokenizer as RustTokenizer
    from tokenizers import decoders, models, pre_tokenizers, trainers

    text = "".join(
        f"# Überschrift {i}\n\nSome words, 中文句子。 {'ab' * (i % 40)} ﷺ {words(i)}\n\n" for i in range(120)
    )
    tokenizer = RustTokenizer(models.BPE(unk_token="[UNK]"))
    if kind == "byte-level":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator([text], trainers.BpeTrainer(vocab_size=400, special_tokens=["[UNK]"]))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    model = ModelTokenizer(ModelFiles(name=kind, folder=tmp_path, dimension=8, window=64))
    for size in (16, 32, 100):
        chunked = chunk(text, config=ChunkConfig(child_tokens=size), tokenizer=model)
        assert max(model.count(body) for body in bodies(text, chunked)) <= size
        assert "".join("".join(bodies(text, chunked)).split()) == "".join(text.split())


def test_sizes_of_a_long_text_are_those_of_its_pieces() -> None:
    text = "some words here\n" * 50_000
    index = TokenIndex(text, WORDS)
    assert index.size(0, len(text)) == 150_000
    assert index.advance(16, 3) == 32
    assert index.retreat(32, 3) <= 16


@pytest.mark.shared
@pytest.mark.parametrize("folder", ["nasty/md/markdown-it", "nasty/md/mistune", "nasty/md/docling"])
def test_real_files_are_chunked_completely(folder: str) -> None:
    if not SHARED.is_dir():
        pytest.skip(f"no shared data at {SHARED}")
    for path in sorted((SHARED / folder).iterdir()):
        text = path.read_text(encoding="utf-8", errors="replace")
        chunked = chunk(text, config=ChunkConfig(), tokenizer=WORDS)
        assert "".join("".join(bodies(text, chunked)).split()) == "".join(text.split()), path.name
        assert all(WORDS.count(body) <= 180 for body in bodies(text, chunked))
