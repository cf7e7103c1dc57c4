"""What nginx passes on with the configuration of `deploy init`, before a server that records what arrives."""

from __future__ import annotations

import http.client
import http.server
import shutil
import socket
import ssl
import subprocess
import threading
import time

import pytest

from undrift.deploy import proxy
from undrift.deploy.init import TEMPLATES

pytestmark = pytest.mark.flower


class Recorder(http.server.BaseHTTPRequestHandler):
    """Stands for the SuperLink: it answers every call and remembers its path."""

    paths: list[str] = []  # noqa: RUF012

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.paths.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *args):
        pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def door(tmp_path):
    """The port of an nginx with the configuration of `deploy init`, before a server that records what arrives."""
    keys = tmp_path / "keys"
    keys.mkdir()
    (tmp_path / "proxy").mkdir()
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", str(keys / "server.key"), "-out", str(keys / "server.crt")],
        check=True, capture_output=True,
    )  # fmt: skip
    shutil.copy(keys / "server.crt", keys / "ca.crt")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "server.crt", keys / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = free_port()
    text = (TEMPLATES / "nginx.conf.txt").read_text()
    text = text.replace("$listen", proxy.listen(f"127.0.0.1:{port}"))
    text = text.replace("$superlink", f"127.0.0.1:{server.server_port}")
    (tmp_path / "proxy" / "nginx.conf").write_text(text)
    args = ["nginx", "-p", str(tmp_path / "proxy"), "-c", "nginx.conf", "-e", "stderr", "-g", "daemon off;"]
    nginx = subprocess.Popen(args, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 20
    while proxy.answer("127.0.0.1", port, "/") is None and time.monotonic() < until:
        time.sleep(0.05)
    Recorder.paths.clear()
    yield port
    nginx.terminate()
    nginx.wait(timeout=20)
    server.shutdown()
    server.server_close()


def test_nginx_passes_only_fleet(door):
    for path in (
        "/v1/control/start-run", "/v1/control/register-node", "/v1/runtime/acquire-task", "/docs", "/openapi.json",
        "/health", "/", "/v1/fleet", "/v1/fleet/../control/start-run", "/v1/fleet/%2e%2e/control/start-run",
        "/v1/fleet/%2E%2E%2Fcontrol/start-run", "//v1//control/start-run", "/V1/FLEET/pull-messages",
    ):  # fmt: skip
        assert proxy.answer("127.0.0.1", door, path) in (301, 403), path
    assert Recorder.paths == []
    for path in ("/v1/fleet/pull-messages", "/v1/control/../fleet/get-run"):
        assert proxy.answer("127.0.0.1", door, path) == 200
    assert Recorder.paths == ["/v1/fleet/pull-messages", "/v1/fleet/get-run"]  # what was matched is what arrives
    context = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection("127.0.0.1", door, context=context)
    connection.request("GET", "/v1/fleet/pull-messages")
    assert connection.getresponse().status == 403
    connection.close()
    assert len(Recorder.paths) == 2
