"""The lake of one collection: typed access to everything under ``lake/<collection>/``.

::

    parts/<stage>/<key>.parquet    what was computed; immutable
    passages/<key>/                the reader's side of a shard
    catalog/<key>/                 all documents and chunks of a snapshot
    bm25/<key>/                    the lexical index
    snapshots/<id>-<layout>.json   what belongs together
    flips/<n>.json                 the pointer: the highest n is what readers use
    pins/<snapshot>.json           snapshots that retention shall keep, and why
    withdrawn/<snapshot>.json      snapshots that are being swept: for readers they do not exist any more
    sources/<name>.json            recorded roots
    identity                       tells this lake from others that share a Milvus server with it
    access/                        who may see what today; outside all snapshots (access.py)
    copies/                        of the newest flip and of what is under access/, which nothing else could make again
    state/                         disposable: hints, failures, newest parts, Prefect's cache records
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import io
import json
import math
import re
import secrets
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.errors import GlossatorError, Overtaken
from schemas.snapshot import Flip, PartRef, Record, Snapshot, Stage
from tasks.lake import flip_copy
from tasks.lake.seal import check_seal, file_digest, open_record, seal, seal_record
from tasks.lake.storage import AlreadyExists, Blob, LocalStorage, NotFound, Storage, reading

REF_KEY = b"glossator"
MANIFEST = "manifest.json"
MILVUS_FOLDER = "milvus.db"
SMALL_BYTES = 16 << 20
"""Files up to this size are compared with their checksums whenever a reader opens them: 1 ms per MiB."""
RecordType = TypeVar("RecordType", bound=Record)
_FLIP = re.compile(r"flips/([0-9]+)\.json")
USE_RECORDED_EVERY = dt.timedelta(hours=1)
"""What is found counts as used, and its file's time says when; written no more often than this."""


class Corrupt(GlossatorError):
    """A file of the lake is not what its checksum says."""


class Lake:
    """Parts, folders, snapshots and flips of one collection."""

    def __init__(self, root: Path, collection: str) -> None:
        self.root = root
        self.collection = collection
        self.storage: Storage = LocalStorage(root / collection)

    def identity(self) -> str:
        """Return what tells this lake from others that share a store with it; drawn when first asked for."""
        if not self.storage.exists("identity"):
            with contextlib.suppress(AlreadyExists):
                self.storage.create("identity", f"lake {secrets.token_hex(8)}".encode())
        identity = self.storage.read("identity").decode(errors="replace")
        if not re.fullmatch("lake [0-9a-f]{16}", identity):
            hint = "restore it from a copy: it is the property glossator.lake of the Milvus collections of this lake"
            raise Corrupt(f"{self.storage.local('identity')} is damaged", hint=hint)
        return identity

    # --- parts -------------------------------------------------------------------------------------------

    def write_part(self, ref: PartRef, table: pa.Table) -> PartRef:
        """Write a part and return its ref, which is kept in the file's footer."""
        metadata = {**(table.schema.metadata or {}), REF_KEY: ref.model_dump_json().encode()}
        sink = pa.BufferOutputStream()
        pq.write_table(table.replace_schema_metadata(metadata), sink, compression="zstd", store_schema=True)
        self.storage.write(part_path(ref.stage, ref.key), seal(sink.getvalue().to_pybytes()))
        self._remember(ref)
        return ref

    def find_part(self, stage: Stage, key: str) -> PartRef | None:
        """Return the ref of a part that exists, else None.

        Raises:
            Corrupt: it exists and is damaged.
        """
        path = part_path(stage, key)
        if not self._use(path):
            return None
        return _ref(pq.read_metadata(self._sealed(path))).model_copy(update={"reused": True})

    def read_part(self, stage: Stage, key: str, columns: list[str] | None = None) -> pa.Table:
        """Read a part, or some of its columns.

        Raises:
            NotFound, Corrupt
        """
        path = part_path(stage, key)
        if not self.storage.exists(path):
            raise NotFound(f"part {path} is missing", hint="run `glossator index` again: it is computed anew")
        return pq.read_table(self._sealed(path), columns=columns)

    def read_part_of(self, stage: Stage, key: str, config: str, columns: list[str] | None = None) -> pa.Table | None:
        """Read a part that was made by a config (PartRef.config), None where there is no such part.

        Raises:
            Corrupt: it exists and is damaged.
        """
        path = part_path(stage, key)
        if not self._use(path):
            return None
        file = pq.ParquetFile(self._sealed(path))
        return file.read(columns) if _ref(file.metadata).config == config else None

    def _sealed(self, path: str) -> pa.BufferReader:
        """Map a file whose every byte is as it was written."""
        try:
            with reading(self.storage.local(path)), pa.memory_map(str(self.storage.local(path))) as file:
                buffer = file.read_buffer()
            check_seal(memoryview(buffer))
        except (OSError, ValueError) as error:
            raise self._corrupt(path, error) from error
        return pa.BufferReader(buffer)

    def _corrupt(self, path: str, error: Exception) -> Corrupt:
        return Corrupt(
            f"{self.storage.local(path)} is damaged ({first_line(error)})",
            hint="delete that file and run `glossator index` again: it is computed anew",
        )

    def _remember(self, ref: PartRef) -> None:
        # Parts of a run that ended before it published are found by these hints, and their rows copied.
        self.storage.write(f"state/newest/{ref.stage}/{ref.shard}.json", ref.model_dump_json().encode())

    def newest_part(self, stage: Stage, shard: int) -> PartRef | None:
        """Return the part that was last written for a shard, published or not, if it still exists."""
        try:
            ref = PartRef.model_validate_json(self.storage.read(f"state/newest/{stage}/{shard}.json"))
        except (NotFound, ValueError):
            return None
        return ref if self.storage.exists(part_path(stage, ref.key)) else None

    # --- folders of files --------------------------------------------------------------------------------

    def write_folder(self, folder: str, files: Mapping[str, Blob]) -> None:
        """Write files and then a manifest with their checksums: without it the folder does not exist."""
        manifest = {}
        for name, data in files.items():
            self.storage.write(f"{folder}/{name}", data)
            manifest[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        self.storage.write(f"{folder}/{MANIFEST}", seal_record(json.dumps(manifest, indent=1).encode()))

    def has_folder(self, folder: str, *, verify: bool = False) -> bool:
        """Tell whether a folder was written completely, and no file of it has gone or been cut short since.

        Found counts as used.

        Args:
            verify: nor has any byte changed, for what a new snapshot is about to name.
        """
        try:
            self.open_folder(folder, verify=verify)
        except (NotFound, Corrupt):
            return False
        return self._use(f"{folder}/{MANIFEST}")

    def delete_folder(self, folder: str) -> None:
        """Delete a folder, its manifest first: from then on it does not exist."""
        self.storage.delete_folder(folder, MANIFEST)

    def _use(self, key: str) -> bool:
        found = self.storage.stat(key)
        if found is None:
            return False
        if dt.datetime.now(dt.UTC) - found.modified > USE_RECORDED_EVERY:
            self.storage.touch(key)
        return True

    def open_folder(self, folder: str, *, verify: bool | Container[str] = False, up_to: float = math.inf) -> Path:
        """Return the local path of a complete folder.

        Args:
            verify: names of files whose checksums to compare too (reads them), True for all; else names and sizes only.
            up_to: bytes of the largest file that is compared.

        Raises:
            NotFound, Corrupt
        """
        path = self.storage.local(folder)
        for name, size, digest in self._manifest(folder):
            file, found = path / name, self.storage.stat(f"{folder}/{name}")
            if found is None or found.bytes != size:
                raise Corrupt(f"{file} is missing or cut short", hint=rebuild_hint(path))
            wanted = verify if isinstance(verify, bool) else name in verify
            if wanted and size <= up_to and file_digest(file) != digest:
                raise Corrupt(f"{file} differs from its checksum", hint=rebuild_hint(path))
        return path

    def _manifest(self, folder: str) -> list[tuple[str, int, str]]:
        """Return name, size and checksum of the files of a folder."""
        path = self.storage.local(folder)
        try:
            rows = json.loads(self.read_sealed(f"{folder}/{MANIFEST}"))
            return [(name, int(row["bytes"]), str(row["sha256"])) for name, row in rows.items()]
        except NotFound:
            raise NotFound(f"{path / MANIFEST} is missing", hint=rebuild_hint(path)) from None
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise Corrupt(f"{path / MANIFEST} is damaged ({first_line(error)})", hint=rebuild_hint(path)) from error

    # --- snapshots and flips -----------------------------------------------------------------------------

    def read_record(self, kind: type[RecordType], key: str, otherwise: str) -> RecordType:
        """Read a record that must be there.

        Args:
            otherwise: what to do beside restoring it from a copy, as the error says.

        Raises:
            Corrupt: it is missing or damaged.
        """
        try:
            return kind.model_validate_json(self.read_sealed(key))
        except (NotFound, ValueError) as error:
            raise Corrupt(
                f"{self.storage.local(key)} is {'missing' if isinstance(error, NotFound) else 'damaged'}",
                hint=f"restore it from a copy, or {otherwise}",
            ) from error

    def write_snapshot(self, snapshot: Snapshot) -> None:
        """Write a snapshot; nobody reads it before a flip names it."""
        self.write_record(snapshot_path(snapshot.name), snapshot)

    def read_snapshot(self, name: str) -> Snapshot:
        """Read a snapshot by the name that a flip holds."""
        return self.read_record(
            Snapshot, snapshot_path(name), "go back to another one: `glossator snapshots`, `glossator rollback`"
        )

    def has_snapshot(self, name: str) -> bool:
        """Tell whether a snapshot is there. While it is, so is all that it names."""
        return self.storage.exists(snapshot_path(name))

    def snapshot_names(self) -> list[str]:
        """Return the names of all snapshots that are there, published or not."""
        return [Path(key).stem for key in self.storage.keys("snapshots")]

    def current_flip(self) -> Flip | None:
        """Return the newest flip: what readers use."""
        return next(self.newest_flips(), None)

    def flip_numbers(self) -> list[int]:
        """Return the numbers of the flips that are there, the newest first."""
        names = map(_FLIP.fullmatch, self.storage.keys("flips"))
        return sorted((int(name[1]) for name in names if name), reverse=True)

    def newest_flips(self) -> Iterator[Flip]:
        """Yield the flips from the newest to the first, each read when it is asked for.

        Raises:
            Corrupt: the newest is lost: readers would be given an older index as the newest.
        """
        numbers = self.flip_numbers()
        copy = flip_copy.read_copy(self.storage)
        if copy is not None and copy.number > max(numbers, default=0):
            raise Corrupt(f"{self.storage.local(f'flips/{copy.number}.json')} is missing", hint=flip_copy.PUT_BACK)
        for number in numbers:
            yield self.read_flip(number)

    def put_back_flip(self) -> list[str]:
        """Put the newest flip back from its copy where it is lost or damaged; return its storage key."""
        return flip_copy.put_back(self.storage, max(self.flip_numbers(), default=0))

    def read_flip(self, number: int) -> Flip:
        """Read a flip by its number."""
        key = f"flips/{number}.json"
        if not self.storage.exists(key):
            raise NotFound(f"there is no flip {number} of collection {self.collection!r}", hint="glossator snapshots")
        try:
            return self.read_record(Flip, key, "delete it: the flip before it counts then")
        except Corrupt as error:
            copy = flip_copy.read_copy(self.storage)
            hint = flip_copy.PUT_BACK if copy and copy.number == number else error.hint
            raise Corrupt(error.what, hint=hint) from error

    def current_snapshot(self) -> Snapshot | None:
        """Return the snapshot that readers use."""
        flip = self.current_flip()
        return self.read_snapshot(flip.snapshot) if flip else None

    def create_flip(self, flip: Flip) -> None:
        """Make a snapshot current.

        Raises:
            Overtaken: somebody else flipped meanwhile; nothing was overwritten.
        """
        data = seal_record(flip.model_dump_json(indent=1).encode())
        try:
            self.storage.create(f"flips/{flip.number}.json", data)
        except AlreadyExists as error:
            raise Overtaken(f"somebody else has published flip {flip.number} of {self.collection!r}") from error
        self.storage.write(flip_copy.KEY, data)

    # --- small documents ---------------------------------------------------------------------------------

    def read_sealed(self, key: str) -> bytes:
        """Read a JSON document whose bytes are as they were written.

        Raises:
            NotFound. ValueError: they are not.
        """
        return open_record(self.storage.read(key))

    def write_record(self, key: str, record: Record) -> None:
        """Write a record with its checksum."""
        self.storage.write(key, seal_record(record.model_dump_json(indent=1).encode()))

    def read_json(self, key: str) -> Any:
        """Read a JSON document."""
        try:
            return json.loads(self.read_sealed(key))
        except ValueError as error:
            raise self._corrupt(key, error) from error

    def write_json(self, key: str, value: Any) -> None:
        """Write a JSON document atomically."""
        self.storage.write(key, seal_record(json.dumps(value, indent=1, ensure_ascii=False).encode()))

    def read_frame(self, key: str) -> pl.DataFrame | None:
        """Read an Arrow IPC file into memory; None where it does not exist."""
        try:
            data = self.storage.read(key)
        except NotFound:
            return None
        try:
            return pl.read_ipc(io.BytesIO(data))
        except (pl.exceptions.PolarsError, OSError) as error:
            raise self._corrupt(key, error) from error

    def write_frame(self, key: str, frame: pl.DataFrame) -> None:
        """Write an Arrow IPC file atomically."""
        buffer = io.BytesIO()
        frame.write_ipc(buffer, compression="uncompressed")
        self.storage.write(key, buffer.getvalue())


def _ref(footer: pq.FileMetaData) -> PartRef:
    return PartRef.model_validate_json(footer.metadata[REF_KEY])


def first_line(error: object) -> str:
    """Return the first line of an error's words; some libraries write a paragraph."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def rebuild_hint(folder: Path) -> str:
    """Return the way to have a damaged folder of the published snapshot built anew."""
    return f"run `glossator doctor --repair`: {folder.name} is built anew"


def ipc_bytes(table: pa.Table) -> bytes:
    """Return a table as an uncompressed Arrow IPC file, which can be memory-mapped."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue().to_pybytes())


def part_path(stage: Stage, key: str) -> str:
    """Return the storage key of a part."""
    return f"parts/{stage}/{key}.parquet"


def passages_folder(key: str) -> str:
    """Return the storage folder of a shard's passages."""
    return f"passages/{key}"


def catalog_folder(key: str) -> str:
    """Return the storage folder of a catalog."""
    return f"catalog/{key}"


def bm25_folder(key: str) -> str:
    """Return the storage folder of a BM25 index."""
    return f"bm25/{key}"


def snapshot_path(name: str) -> str:
    """Return the storage key of a snapshot."""
    return f"snapshots/{name}.json"
