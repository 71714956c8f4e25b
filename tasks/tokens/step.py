"""Tokens, for one shard: the BM25 terms of each distinct embedded text, copied where they are known."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from schemas.identity import digest_rows, part_key
from schemas.snapshot import PartRef
from schemas.tables import TOKENS
from schemas.work import ShardJob, Workspace
from tasks.progress import expect, tick
from tasks.step import donor_tables, lake_of, parts_step
from tasks.tokens.analyzer import Analyzer

ROWS_AT_ONCE = 1_000


def _key(space: Workspace, job: ShardJob, contexts: PartRef) -> str:
    return part_key("tokens", space.stages["tokens"], contexts.reads["embedded"])


def _compute(space: Workspace, job: ShardJob, key: str, contexts: PartRef) -> PartRef:
    lake = lake_of(space)
    table = lake.read_part("contextualize", contexts.key, ["embedded_digest", "embedded"])
    texts = dict(zip(table["embedded_digest"].to_pylist(), table["embedded"].to_pylist(), strict=True))
    terms: dict[str, list[str]] = {}
    for donor in donor_tables(space, job, "tokens"):
        rows = donor.filter(pc.is_in(donor["embedded_digest"], pa.array(sorted(texts), pa.string())))
        terms.update(zip(rows["embedded_digest"].to_pylist(), rows["tokens"].to_pylist(), strict=True))
        if texts.keys() <= terms.keys():
            break
    analyzer = Analyzer(space.config.bm25)
    missing = sorted(texts.keys() - terms.keys())
    expect("tokens", len(missing))
    known: dict[str, str] = {}  # One copy of each term: a large document has millions of them.
    for digest in missing:
        terms[digest] = [known.setdefault(term, term) for term in analyzer.terms(texts[digest])]
        tick("tokens")
    part = term_table({name: terms[name] for name in texts})
    return lake.write_part(describe_terms(space.stages["tokens"], job.shard, key, part, len(missing)), part)


def term_table(terms: Mapping[str, list[str]]) -> pa.Table:
    """Return the table of TOKENS of the terms of each embedded text, by its digest. It holds no other term."""
    digests = sorted(terms)
    return pa.table([pa.array(digests, pa.string()), _as_lists([terms[name] for name in digests])], schema=TOKENS)


def describe_terms(config: str, shard: int, key: str, table: pa.Table, computed: int = 0) -> PartRef:
    """Return the ref of a table of TOKENS."""
    rows = (
        row
        for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE)
        for row in zip(batch["embedded_digest"].to_pylist(), batch["tokens"].to_pylist(), strict=True)
    )
    return PartRef(
        stage="tokens",
        shard=shard,
        key=key,
        config=config,
        rows_digest=digest_rows((name, "\n".join(terms)) for name, terms in rows),  # no term holds a line end
        counts={"texts": table.num_rows, "computed": computed},
    )


def _as_lists(rows: list[list[str]]) -> pa.ListArray:
    flat = pa.array([term for row in rows for term in row], pa.string()).dictionary_encode()
    offsets = [0]
    for row in rows:
        offsets.append(offsets[-1] + len(row))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)


TOKENIZE = parts_step("tokens", _key, _compute)
