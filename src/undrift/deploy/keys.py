"""Trial keys: a private certificate authority, a certificate for the proxy and the SuperLink, one key pair per site.

In production every site makes its own key (`ssh-keygen -t ecdsa -b 384`) and sends only the public half, and the
certificate comes from your organisation's certificate authority.
"""

from __future__ import annotations

import datetime
import ipaddress
import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from undrift.core.errors import BadRequest
from undrift.deploy import spec

PRIVATE = 0o600
LOOPBACK = ("localhost", "127.0.0.1")  # where the operator and the proxy reach the SuperLink


def make(app: Path, hosts: list[str]) -> Path:
    """`keys/` in the app's folder: ca.crt, server.crt, server.key, SITE and SITE.pub."""
    folder = app / "keys"
    if folder.exists():
        raise BadRequest(f"{folder} exists already; remove it to make new keys")
    sites = spec.read(app).all_sites
    folder.mkdir(mode=0o700)
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    issuer = common_name("Undrift trial CA")
    root = signed(
        issuer, issuer, authority.public_key(), authority, [(x509.BasicConstraints(True, 0), True), SIGNS_CERTIFICATES]
    )
    names = x509.SubjectAlternativeName([address(host) for host in dict.fromkeys([*hosts, *LOOPBACK])])
    leaf = signed(common_name(hosts[0]), issuer, server.public_key(), authority, [(names, False)])
    for name, certificate in (("ca.crt", root), ("server.crt", leaf)):
        (folder / name).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    write_key(folder / "server.key", server, serialization.PrivateFormat.PKCS8)
    for site in sites:
        key = ec.generate_private_key(ec.SECP384R1())
        write_key(folder / site, key, serialization.PrivateFormat.OpenSSH)
        public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        (folder / f"{site}.pub").write_bytes(public + f" {site}\n".encode())
    return folder


SIGNS_CERTIFICATES = (
    x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    ),
    True,
)  # fmt: skip


def common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def address(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def signed(subject, issuer, key, by, extensions):  # type: ignore[no-untyped-def]
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key()), critical=False)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(by, hashes.SHA256())


def write_key(path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> None:
    path.touch(mode=PRIVATE)
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def main(app: Path) -> None:
    """`python make_keys.py [HOST …]`, in the app's folder."""
    try:
        folder = make(app, sys.argv[1:] or list(LOOPBACK))
    except BadRequest as error:
        print(f"undrift: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    print(f"trial keys are in {folder}; do not use them in production")
