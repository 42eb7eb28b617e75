"""Real servers on this machine for files on other machines: an S3 server, and a web
server."""

import gc
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.request import Request, urlopen

KEY = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}


@contextmanager
def s3_server() -> Iterator[str]:
    """moto's S3, over HTTP as the real one; the environment names it. Gives its
    address."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # every request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    with s3_environment(address):
        yield address
    urlopen(
        Request(f"{address}/moto-api/reset", method="POST")
    ).close()  # kept by the process
    server.stop()


@contextmanager
def s3_environment(address: str, **more: str) -> Iterator[None]:
    """As users name a server and give credentials; nothing of a former one is
    remembered."""
    import s3fs

    asked = {
        **KEY,
        "AWS_ENDPOINT_URL": address,
        "AWS_DEFAULT_REGION": "us-east-1",
        **more,
    }
    asked = {
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        **asked,
    }
    s3fs.S3FileSystem.clear_instance_cache()
    with patch.dict(os.environ, asked):
        for name in [name for name, value in asked.items() if not value]:
            del os.environ[name]
        yield
    s3fs.S3FileSystem.clear_instance_cache()
    # What its library left open is closed here, not in somebody else's test.
    gc.collect()


def upload(folder: Path, bucket: str) -> None:
    import s3fs

    system = s3fs.S3FileSystem(skip_instance_cache=True)
    system.mkdir(bucket)
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        system.put_file(str(file), f"{bucket}/{file.relative_to(folder).as_posix()}")


class Answering(BaseHTTPRequestHandler):
    """Says what `answers` has for a path: a status, and a body that may be shorter than
    said."""

    answers: dict[str, tuple[int, bytes, int]]

    def do_GET(self) -> None:
        status, body, size = self.answers.get(self.path.split("?")[0], (404, b"", 0))
        asked = self.headers.get("Range")
        if asked and status == 200:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last or size - 1), size - 1)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end}/{size}")
            body, size = body[start : end + 1], end + 1 - start
        else:
            self.send_response(status)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(size))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def web_server(answers: dict[str, tuple[int, bytes, int]]) -> Iterator[str]:
    with served(type("Handler", (Answering,), {"answers": answers})) as address:
        yield address


@contextmanager
def served(handler: Any) -> Iterator[str]:
    """A web server's address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()
