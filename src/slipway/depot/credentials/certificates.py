"""Certificates: the depot's own authority, and the certificates that it issues to registry and depot. Pure.

A renewed certificate of the authority has the same key and name as its predecessor, so that clients with either one
trust certificates that the other signed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "slipway-depot")])
AUTHORITY_LIFE, AUTHORITY_LEAST = timedelta(days=3650), timedelta(days=730)
"""For how long the authority's certificate is good, and how long it must still be."""
LIFE, LEAST = timedelta(days=365), timedelta(days=90)
"""The same of what it signs."""
BACK = timedelta(hours=1)
"""By which certificates are dated back, for clocks that are late."""


class Pair(NamedTuple):
    """A certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes


class UnreadableError(ValueError):
    """It is no certificate with its key. The message shows nothing of it."""


def authority(now: datetime, before: Pair | None) -> Pair:
    """The authority's pair: the one before while it is good for long enough, else one that continues it.

    Raises UnreadableError where the one before cannot be read.
    """
    if before is None:
        key = ec.generate_private_key(ec.SECP256R1())
    else:
        certificate, key = _load_pair(before)
        if certificate.not_valid_after_utc - now >= AUTHORITY_LEAST:
            return before
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(AUTHORITY_NAME, key, now, AUTHORITY_LIFE)
        .issuer_name(AUTHORITY_NAME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return Pair(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def server(issuer: Pair, names: Sequence[str], now: datetime) -> Pair:
    """A server's pair for these DNS names and addresses. Raises UnreadableError, ValueError for a name that is none."""
    certificate, issuing_key = _load_pair(issuer)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    builder = (
        _builder(subject, key, now, LIFE)
        .issuer_name(certificate.subject)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuing_key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )
    return Pair(_pem(builder.sign(issuing_key, hashes.SHA256())), _key_pem(key))


def fault(pair: Pair, issuer: Pair, names: Sequence[str], now: datetime) -> str:
    """Why a server needs another pair; empty: it does not. Raises UnreadableError for the issuer's."""
    authority_certificate, _unused = _load_pair(issuer)
    try:
        certificate, _unused = _load_pair(pair)
        certificate.verify_directly_issued_by(authority_certificate)
        has = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except UnreadableError:
        return "it cannot be read"
    except (InvalidSignature, TypeError, ValueError, x509.ExtensionNotFound):
        return "it is signed by another CA"
    if certificate.not_valid_after_utc - now < LEAST:
        return f"it expires on {certificate.not_valid_after_utc:%Y-%m-%d}"
    return "" if set(has) == {_name(name) for name in names} else "it is for other names"


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    """Sets the common fields of all certificates."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACK)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _load_pair(pair: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, None)
        if isinstance(key, ec.EllipticCurvePrivateKey) and certificate.public_key() == key.public_key():
            return certificate, key
    except (ValueError, TypeError, UnsupportedAlgorithm):
        pass  # what is in it is shown nowhere
    raise UnreadableError("it has no certificate with its key")


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
