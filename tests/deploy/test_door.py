"""The sites' door: what nginx passes on, and what `deploy check --address` says about it."""

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

from undrift.core.errors import BadRequest
from undrift.deploy import proxy
from undrift.deploy.init import TEMPLATES, Places

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin")
OPENSSL = shutil.which("openssl")


@pytest.mark.parametrize(("address", "lines"), [
    ("127.0.0.2:9443", "listen 127.0.0.2:9443 ssl;"),
    ("localhost:9443", "listen 127.0.0.1:9443 ssl;"),
    ("[::1]:9443", "listen [::1]:9443 ssl;"),
    ("fleet.example.org:443", "listen 443 ssl;\n        listen [::]:443 ssl;"),
])  # fmt: skip
def test_nginx_listens_where_sites_connect(address, lines):
    assert proxy.listen(address) == lines


@pytest.mark.parametrize(
    "address", ["fleet", ":9443", "fleet:", "fleet:0", "fleet:65536", "fleet:²", "a b:1", "a;b:1", ""]
)
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(BadRequest, match="an address is HOST:PORT"):
        Places(address)


def test_the_sites_do_not_connect_to_the_superlink():
    with pytest.raises(BadRequest, match=r"are both 127\.0\.0\.1:9092; they must differ"):
        Places("127.0.0.1:9092")


OPEN = {"Control": 200, "Runtime": 401, "Fleet": 401}
CLOSED = {"Control": 403, "Runtime": 403, "Fleet": 401}


@pytest.mark.parametrize(("door", "superlink", "sentence"), [
    (CLOSED, {}, None),
    (OPEN, {}, "Control answers at 10.0.0.1:9443, where sites connect"),
    ({**CLOSED, "Control": 401}, {}, "Control answers at 10.0.0.1:9443"),
    ({**CLOSED, "Runtime": 415}, {}, "Runtime answers at 10.0.0.1:9443"),
    ({**CLOSED, "Fleet": 502}, {}, "Fleet does not answer at 10.0.0.1:9443 (HTTP 502); is the SuperLink running?"),
    ({}, {}, "nothing answers at 10.0.0.1:9443"),
    (CLOSED, OPEN, "Control answers at 10.0.0.1:9092, which sites can reach"),
])  # fmt: skip
def test_check_says_what_is_open_to_the_sites(door, superlink, sentence, monkeypatch):
    names = {path: name for name, path in proxy.APIS.items()}
    answers = {9443: door, 9092: superlink}
    monkeypatch.setattr(proxy, "answer", lambda host, port, path: answers[port].get(names[path]))
    if sentence is None:
        assert proxy.check("10.0.0.1:9443", 9092)["Control"] == "closed"
    else:
        with pytest.raises(BadRequest) as refused:
            proxy.check("10.0.0.1:9443", 9092)
        assert sentence in str(refused.value)


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
    if NGINX is None or OPENSSL is None:
        pytest.skip("needs nginx and openssl")
    keys = tmp_path / "keys"
    keys.mkdir()
    (tmp_path / "proxy").mkdir()
    subprocess.run(
        [OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
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
    args = [NGINX, "-p", str(tmp_path / "proxy"), "-c", "nginx.conf", "-e", "stderr", "-g", "daemon off;"]
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
