"""A server of files whose connections break, and a record of what was asked of it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """The files by path, and how each is served.

    `breaks` are the numbers of bytes after which the next answers break off, `fails` the statuses of the next answers,
    both taken from the front.  The `whole` files are never sent in part, and the size of those `unsized` is not said.
    `asked` records the path and the Range of each GET.
    """

    files: dict[str, bytes]
    breaks: dict[str, list[int]] = field(default_factory=dict)
    fails: dict[str, list[int]] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    unsized: set[str] = field(default_factory=set)
    asked: list[tuple[str, str]] = field(default_factory=list)
    url: str = ""


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    """Serve a site on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(head=True)

        def do_GET(self) -> None:
            site.asked.append((self.path, self.headers.get("Range", "")))
            self._answer(head=False)

        def _answer(self, head: bool) -> None:
            path = self.path
            if statuses := site.fails.get(path):
                self.send_response(statuses[0] if head else statuses.pop(0))
                self.end_headers()
                return
            if path.endswith("/"):
                links = [name.rpartition("/")[2] for name in site.files if name.startswith(path)]
                content = "".join(f'<a href="{link}">{link}</a>' for link in links).encode()
            elif path in site.files:
                content = site.files[path]
            else:
                self.send_error(404)
                return
            part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if part and path not in site.whole | site.unsized:
                first, last = int(part[1]), min(int(part[2]), len(content) - 1)
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
                content = content[first : last + 1]
            else:
                self.send_response(200)
            self.send_header("Content-Type", "text/html" if path.endswith("/") else "application/octet-stream")
            if path not in site.unsized:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if not head:
                broken = site.breaks.get(path)
                self.wfile.write(content[: broken.pop(0)] if broken else content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
