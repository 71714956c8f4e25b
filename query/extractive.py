"""An answer without a language model: the sentences of the best passages that say most of the question.

Each sentence (list item, table row, line of code) is weighed by the question's terms that it holds, each term by how
rare it is in the documents (idf), and somewhat by what its passage and its headings hold beside it; earlier passages
count more. The answer quotes; it never writes a word of its own.

**When it declines.** Search always returns something. The documents are taken to hold an answer when

- every identifier of the question (a code, a version) stands in some document, and
- one of the passages holds at least two of the question's terms (all, where it has fewer) and ``MIN_SHARE`` of their
  idf, or its vector is as near to the question's as ``MIN_SIMILARITY``.

The numbers were chosen so: of 33 golden questions of the sample corpus (paraphrased on purpose) 28 are answered in
hybrid mode and 22 in bm25 mode; of 41 questions about other things 1 is, and 4 when they are put in bm25 mode to 5,300
chunks of FastAPI's documents, which answer 15 of 15 of their own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from query.lexical import LexicalSearch
from query.retriever import Hit, SearchResult
from query.sentences import units
from query.snapshot_reader import Passage
from schemas.rows import page_range

MIN_SHARE = 0.33
MIN_SHARE_PAIRS = 0.1
"""For terms that are pairs of characters: those across the border of two words are hardly ever found again."""
MIN_SIMILARITY = 0.35
"""Cosine; all-MiniLM-L6-v2 puts questions about other things at 0.34 and below."""

QUOTES = 3
_PASSAGES = 5
_WORTH = 0.5  # A further quote must be worth this share of the best.
_SURROUNDINGS = 0.3
_PER_RANK = 0.15

_FILLERS = frozenset(
    [
        "about",
        "ani",
        "explain",
        "get",
        "give",
        "happen",
        "long",
        "mani",
        "mean",
        "much",
        "must",
        "need",
        "pleas",
        "tell",
    ]
)
"""Terms that ask rather than name, as the English rules stem them; function words have no terms anyway."""
_CHINESE_FILLERS = re.compile(
    "为什么|什么|多少|多久|怎么办|怎么样|怎样|怎么|如何|为何|哪[个些里儿几]?|谁|几|吗|呢|是否|请问|应该|可以|的时候|有没有|[的了是在]"
)
_IDENTIFIER = re.compile(r"(?=[^\s]*\d)[A-Za-z0-9]+(?:[-_./][A-Za-z0-9]+)*")
_FIRST_PAIRED = "\u0e00"


@dataclass(frozen=True, slots=True)
class Citation:
    """Where a quote stands.

    Attributes:
        number: from 1, within one answer.
        page: from 1; None in a document without pages.
        start, end: the document's ``text[start:end]`` is the quote, exactly.
    """

    number: int
    source: str
    uri: str
    title: str | None
    page: int | None
    breadcrumb: tuple[str, ...]
    chunk_id: str
    doc_id: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Quote:
    """Words of a document."""

    text: str
    citation: Citation


@dataclass(frozen=True, slots=True)
class ExtractiveAnswer:
    """Quotes, best first; none where the documents hold no answer, and then ``note`` says why."""

    question: str
    quotes: tuple[Quote, ...]
    note: str | None = None

    @property
    def found(self) -> bool:
        """Whether the documents hold an answer."""
        return bool(self.quotes)


@dataclass(frozen=True, slots=True)
class _Weights:
    """The question's terms and their idf."""

    idf: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.idf.values()) or 1.0

    def share(self, terms: set[str]) -> float:
        return sum(weight for term, weight in self.idf.items() if term in terms) / self.total


def answer(result: SearchResult, lexical: LexicalSearch) -> ExtractiveAnswer:
    """Answer the question of a search result by quoting its first passages."""
    hits = result.hits[:_PASSAGES]
    weights = _weigh(result.question, lexical)
    missing = _unknown_identifiers(result.question, lexical)
    if missing:
        return ExtractiveAnswer(result.question, (), f"not in the documents: {', '.join(missing)}")
    supporting = [hit for hit in hits if _supports(hit, weights, lexical)]
    quotes = _quotes(supporting, weights, lexical)
    note = None if quotes else "not in the documents: no passage says enough of the question"
    return ExtractiveAnswer(result.question, quotes, note)


def _weigh(question: str, lexical: LexicalSearch) -> _Weights:
    terms = set(lexical.analyzer.terms(_CHINESE_FILLERS.sub(" ", question))) - _FILLERS
    if any(_is_paired(term) and len(term) > 1 for term in terms):
        # Single characters are in every text; the pairs say which words are meant.
        terms = {term for term in terms if len(term) > 1 or not _is_paired(term)}
    return _Weights({term: lexical.index.idf(term) for term in sorted(terms)})


def _is_paired(term: str) -> bool:
    return term[0] >= _FIRST_PAIRED


def _unknown_identifiers(question: str, lexical: LexicalSearch) -> list[str]:
    """Return the codes and versions of a question that no document holds, as they were typed."""
    missing = []
    for typed in _IDENTIFIER.findall(question):
        if typed.isdecimal():
            continue
        terms = [term for term in lexical.analyzer.terms(typed) if any(character.isdecimal() for character in term)]
        if terms and not any(lexical.index.holds(term) for term in terms):
            missing.append(typed)
    return missing


def _supports(hit: Hit, weights: _Weights, lexical: LexicalSearch) -> bool:
    if hit.dense is not None and hit.dense.score >= MIN_SIMILARITY:
        return True
    held = _surroundings(hit.passage, lexical) | set(lexical.analyzer.terms(hit.passage.text))
    shared = [term for term in weights.idf if term in held and (len(term) > 1 or _is_paired(term))]
    enough = min(2, len(weights.idf))
    least = MIN_SHARE_PAIRS if any(map(_is_paired, weights.idf)) else MIN_SHARE
    return len(shared) >= max(enough, 1) and weights.share(held) >= least


def _surroundings(passage: Passage, lexical: LexicalSearch) -> set[str]:
    about = [passage.document.title or "", *passage.breadcrumb, passage.context]
    return set(lexical.analyzer.terms("\n".join(about)))


def _quotes(hits: Sequence[Hit], weights: _Weights, lexical: LexicalSearch) -> tuple[Quote, ...]:
    worths: list[tuple[float, int, int, int]] = []
    for place, hit in enumerate(hits):
        text = hit.passage.text
        around = _surroundings(hit.passage, lexical) | set(lexical.analyzer.terms(text))
        for start, end in units(text, hit.passage.kind):
            says = weights.share(set(lexical.analyzer.terms(text[start:end])))
            worth = (says + _SURROUNDINGS * weights.share(around)) / (1 + _PER_RANK * (hit.rank - 1))
            worths.append((-worth, place, start, end))
    quotes: list[Quote] = []
    seen: set[str] = set()
    worths.sort()
    for worth, place, start, end in worths:
        passage = hits[place].passage
        text = passage.text[start:end]
        # Worth is negative, for sorting. Nothing shared at all (the vectors alone were near): one quote is enough.
        if len(quotes) == QUOTES or (quotes and (worth > _WORTH * worths[0][0] or not worth)):
            break
        if text not in seen:
            seen.add(text)
            quotes.append(Quote(text, _cite(passage, start, end, len(quotes) + 1)))
    return tuple(quotes)


def _cite(passage: Passage, start: int, end: int, number: int) -> Citation:
    document = passage.document
    begin = passage.start + start
    return Citation(
        number=number,
        source=document.source,
        uri=document.uri,
        title=document.title,
        page=page_range(document.pages, begin, passage.start + end)[0],
        breadcrumb=passage.breadcrumb,
        chunk_id=passage.chunk_id,
        doc_id=document.doc_id,
        start=begin,
        end=passage.start + end,
    )
