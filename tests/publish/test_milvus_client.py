"""pymilvus as we use it: what it must not do to the process, and which of its errors come back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from pymilvus.exceptions import DataNotMatchException, MilvusException

from schemas.errors import GlossatorError, TransientError
from tasks.publish.milvus_client import connect, shown_uri, told

ROOT = Path(__file__).parents[2]


def test_threads_that_connect_first_at_once_leave_logging_as_it_was() -> None:
    code = """
import faulthandler, logging.config, os, threading
faulthandler.dump_traceback_later(40, exit=True)
from tasks.publish.milvus_client import _import_pymilvus
before = logging.config.dictConfig
barrier = threading.Barrier(4)
def one():
    barrier.wait()
    _import_pymilvus()
threads = [threading.Thread(target=one) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
os._exit(0 if logging.config.dictConfig is before else 3)
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (MilvusException(1400, "auth check failure"), "MILVUS_TOKEN"),
        (MilvusException(100, "collection not found"), "doctor --repair"),
        (MilvusException(1100, "invalid parameter"), "version"),
        (DataNotMatchException(message="float32 expected"), "version"),
    ],
)
def test_a_refusal_that_stays_is_not_retried_and_says_what_to_do(error: Exception, hint: str) -> None:
    with pytest.raises(GlossatorError, match=f"Milvus could not find it: .* -> .*{hint}") as caught, told("find it"):
        raise error
    assert not isinstance(caught.value, TransientError)


@pytest.mark.parametrize("code", [1, 8, 503, 700])
def test_any_other_failure_may_pass(code: int) -> None:
    with pytest.raises(TransientError, match="again"), told("find it"):
        raise MilvusException(code, "not now")


def test_an_error_that_is_its_own_cause_is_told_too() -> None:
    error = MilvusException(1, "gone")
    with pytest.raises(TransientError, match="again"), told("find it"):
        raise error from error


@pytest.fixture
def refusing() -> Iterator[str]:
    """A server that takes nobody's token."""

    class Refusing(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
            def refuse(request: bytes, context: grpc.ServicerContext) -> bytes:
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "auth check failure, please check the token")

            return grpc.unary_unary_rpc_method_handler(refuse)

    server = grpc.server(ThreadPoolExecutor(2), handlers=[Refusing()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None)


def test_a_wrong_password_is_told_at_once_and_never_printed(refusing: str) -> None:
    with pytest.raises(GlossatorError, match="MILVUS_TOKEN") as caught:
        connect(f"http://me:s3cret@{refusing}", None, 5.0)
    assert not isinstance(caught.value, TransientError)
    assert refusing in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://me:s3cret@milvus:19530/wiki", "http://milvus:19530/wiki"),
        ("https://milvus:19530", "https://milvus:19530"),
        ("http://me:s3cret@[milvus", "milvus.uri"),
    ],
)
def test_a_uri_is_shown_without_who_logs_in(uri: str, shown: str) -> None:
    assert shown_uri(uri) == shown
