"""Load, for one shard: read each document of the plan, or copy its row from an earlier part.

Rows are copied by content digest, so unchanged, renamed and copied documents are not parsed again; what is granted to
whom is the plan's, and worked into each row, copied or not. A document that cannot be loaded is left out of the part,
and of its key: the part then stands for what it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from schemas.access import effective
from schemas.documents import LoadedDocument
from schemas.errors import GlossatorError, TransientError
from schemas.identity import (
    content_digest,
    digest_rows,
    metadata_digest,
    part_key,
    structure_digest,
    text_digest,
)
from schemas.rows import metadata_of
from schemas.snapshot import Failure, PartRef
from schemas.tables import DOCUMENTS, PLAN
from schemas.work import ShardJob, Workspace
from tasks.isolation import CORES
from tasks.lake.lake import Lake
from tasks.load.isolation import is_isolated, load
from tasks.load.loader import document_type
from tasks.plan.source import Source, open_source
from tasks.progress import expect, tick
from tasks.step import donor_tables, failure_of, lake_of, parts_step


def load_key(config: str, documents: Iterable[tuple[str, str, str | None]]) -> str:
    """Return the key of a load part: its config and the (doc_id, content digest, granted) of what it holds."""
    return part_key("load", config, digest_rows(documents))


def _key(space: Workspace, job: ShardJob) -> str:
    return job.load_key


def _compute(space: Workspace, job: ShardJob, key: str) -> PartRef:
    lake = lake_of(space)
    wanted = _documents_of(lake, job)
    donors = _donor_rows(space, job, wanted)
    sources = {spec.name: open_source(spec, space.config.load) for spec in space.sources}
    expect("load", wanted.height)
    rows: list[dict[str, Any]] = []
    failures: list[Failure] = []
    new: list[dict[str, Any]] = []
    for document in wanted.iter_rows(named=True):
        donor = donors.get((document["content_digest"], _loader_of(document["uri"])))
        if donor is not None:
            own = {name: document[name] for name in ("doc_id", "source", "uri")}
            rows.append(_granted({**donor, **own}, document["granted"]))
            tick("load")
        else:
            new.append(document)
    copied = len(rows)
    several = any(is_isolated(document["uri"]) for document in new)
    with ThreadPoolExecutor(CORES) as threads:
        each = threads.map if several else map
        for outcome in each(lambda document: _load(sources[document["source"]], document, space), new):
            if isinstance(outcome, Failure):
                failures.append(outcome)
            else:
                rows.append(outcome)
            tick("load")
    rows.sort(key=lambda row: row["doc_id"])
    table = pa.Table.from_pylist(rows, schema=DOCUMENTS)
    return lake.write_part(describe_documents(space.stages["load"], job.shard, table, failures, copied), table)


def _load(source: Source, document: Mapping[str, Any], space: Workspace) -> dict[str, Any] | Failure:
    digest = ""
    try:
        data = source.read(document["uri"])
        digest = content_digest(data)
        loaded = load(data, document["uri"], space.config.load)
        return _granted(_row(document, digest, loaded), document["granted"])
    except TransientError:
        raise
    except Exception as error:  # One bad document harms only itself, whatever its parser throws.
        message = error.message if isinstance(error, GlossatorError) else f"{type(error).__name__}: {error}"
        return failure_of("load", document, error, message, digest)


def _documents_of(lake: Lake, job: ShardJob) -> pl.DataFrame:
    """Return the documents that a shard shall hold: rows of PLAN."""
    return _plan(lake, job.plan).get(job.shard, pl.DataFrame(schema=dict.fromkeys(PLAN.names, pl.String)))


@lru_cache(maxsize=1)
def _plan(lake: Lake, key: str) -> Mapping[int, pl.DataFrame]:
    # Read once for all shards of a run: each reading it for itself would take quadratic time. A plan's key is a digest
    # of its rows, so that it never changes.
    plan = lake.read_frame(key)
    if plan is None:
        raise TransientError(f"{lake.storage.local(key)} is gone", hint="run the same command again")
    return {shard: rows for (shard,), rows in plan.partition_by("shard", as_dict=True).items()}


def describe_documents(
    config: str, shard: int, table: pa.Table, failures: Iterable[Failure] = (), copied: int = 0
) -> PartRef:
    """Return the ref of a table of DOCUMENTS."""
    wanted = ("_id", "_digest", "uri", "granted", "flags")
    columns = {name: table[name].to_pylist() for name in DOCUMENTS.names if name.endswith(wanted)}
    ids, granted = columns["doc_id"], columns["granted"]
    digests = zip(*(columns[f"{name}_digest"] for name in ("text", "metadata", "content")), strict=True)
    return PartRef(
        stage="load",
        shard=shard,
        key=load_key(config, zip(ids, columns["content_digest"], granted, strict=True)),
        config=config,
        reads={
            "structure": digest_rows(zip(ids, columns["structure_digest"], strict=True)),
            "metadata": digest_rows(zip(ids, columns["uri"], columns["metadata_digest"], strict=True)),
        },
        rows_digest=digest_rows(
            (doc_id, *own, grants, *flags)
            for doc_id, own, grants, flags in zip(ids, digests, granted, columns["flags"], strict=True)
        ),
        counts={"documents": table.num_rows, "computed": table.num_rows - copied, "copied": copied},
        failures=tuple(failures),
    )


def _granted(row: dict[str, Any], granted: str | None) -> dict[str, Any]:
    """Return a row with the groups that count, and what follows from them."""
    groups = effective(granted, row["stated_groups"])
    metadata = replace(metadata_of(row), groups=groups)
    return {
        **row,
        "granted": granted,
        "groups": None if groups is None else list(groups),
        "metadata_digest": metadata_digest(metadata, tuple(row["pages"])),
    }


def _loader_of(uri: str) -> tuple[str, str]:
    # The ending decides loader and syntax: a file renamed from .txt to .md is read anew.
    return document_type(uri) or "", uri.rpartition(".")[2].lower()


def _donor_rows(space: Workspace, job: ShardJob, documents: pl.DataFrame) -> Mapping[tuple[str, tuple[str, str]], Any]:
    pairs = documents.select("content_digest", "uri").iter_rows()
    wanted = {(digest, _loader_of(uri)) for digest, uri in pairs}
    digests = {digest for digest, _ in wanted}
    rows: dict[tuple[str, tuple[str, str]], Any] = {}
    for table in donor_tables(space, job, "load"):
        mask = pc.is_in(table["content_digest"], pa.array(sorted(digests), pa.string()))
        for row in table.filter(mask).to_pylist():
            rows.setdefault((row["content_digest"], _loader_of(row["uri"])), row)
        if wanted <= rows.keys():
            break
    return rows


def _row(document: Mapping[str, Any], digest: str, loaded: LoadedDocument) -> dict[str, Any]:
    metadata = loaded.metadata
    stated = None if metadata.groups is None else sorted(set(metadata.groups))
    return {
        "doc_id": document["doc_id"],
        "source": document["source"],
        "uri": document["uri"],
        "content_digest": digest,
        "text_digest": text_digest(loaded.text),
        "metadata_digest": metadata_digest(metadata, loaded.pages),
        "structure_digest": structure_digest(loaded.text, metadata.type, metadata.syntax, loaded.pages),
        "type": metadata.type,
        "title": metadata.title,
        "syntax": metadata.syntax,
        "language": metadata.language,
        "tags": sorted(set(metadata.tags)),
        "date": metadata.date,
        "groups": stated,
        "stated_groups": stated,
        "granted": None,
        "pages": list(loaded.pages),
        "flags": list(loaded.flags),
        "text": loaded.text,
    }


LOAD = parts_step("load", _key, _compute)
