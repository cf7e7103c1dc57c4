"""The sites' door: where nginx listens, and what `deploy check --address` says about what is open there."""

from __future__ import annotations

import pytest

from undrift.core.errors import BadRequest
from undrift.deploy import proxy
from undrift.deploy.init import Places


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
