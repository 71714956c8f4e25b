"""A healthy run that leaves its heartbeat little room: real chunking in three threads, and one that holds the
interpreter's lock for seconds on end, as a C extension may."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from prefect import flow

from deployments.serve import serve_flows
from schemas.config import Config
from tasks.chunk.chunker import chunk_document
from tasks.embed.encoder import HashEncoder
from tasks.embed.model import locate_model
from tasks.embed.tokenizer import open_tokenizer

CORPUS = Path(__file__).parents[2] / "data" / "corpus"
HELD_NUMBERS = 300_000_000


@flow(name="busy")
def busy(seconds: int) -> int:
    """Work for so many seconds; return the number of chunks that were made."""
    deadline = time.monotonic() + seconds
    config = Config().chunk
    tokenizer = open_tokenizer(locate_model(Config().embed.model))
    encoder = HashEncoder(384)
    texts = [path.read_text(encoding="utf-8") for path in sorted(CORPUS.rglob("*.md"))]
    made = [0, 0, 0]

    def chunk(worker: int) -> None:
        while time.monotonic() < deadline:
            for text in texts:
                children = chunk_document(text, "markdown", None, tokenizer, config).children
                encoder.encode([text[span.start : span.end] for span in children])
                made[worker] += len(children)

    def hold() -> None:
        while time.monotonic() < deadline:
            sum(range(HELD_NUMBERS))
            time.sleep(10)

    threads = [*(threading.Thread(target=chunk, args=[worker]) for worker in range(3)), threading.Thread(target=hold)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(made)


if __name__ == "__main__":
    from tests.e2e import busy as module  # As the child imports it, not as ``__main__``.

    sys.exit(serve_flows([module.busy]))
