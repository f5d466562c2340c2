"""An authority and certificates of it, for servers of tests that speak TLS."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class Authority:
    """Signs certificates for 127.0.0.1 and localhost."""

    def __init__(self, name: str = "authority") -> None:
        self._key, self._name = ec.generate_private_key(ec.SECP256R1()), _named(name)
        builder = _builder(self._name, self._name, self._key).add_extension(
            x509.BasicConstraints(True, 0), critical=True
        )
        self.pem = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def context(self, folder: Path, *names: str) -> ssl.SSLContext:
        """For a server that has these names, too."""
        key = ec.generate_private_key(ec.SECP256R1())
        spoken = [x509.IPAddress(ip_address("127.0.0.1")), *map(x509.DNSName, ("localhost", *names))]
        builder = _builder(_named("server"), self._name, key).add_extension(
            x509.SubjectAlternativeName(spoken), critical=False
        )
        chain, private = folder / "tls.crt", folder / "tls.key"
        chain.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        private.write_bytes(key.private_bytes(*form))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain, private)
        return context


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )
