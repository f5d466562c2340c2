"""The depot's own certificate authority (CA), and the certificates that it issues for the registry and the depot. Pure.

A renewed CA certificate has the same key and name as its predecessor, so a client that trusts one of them also trusts
certificates signed with the other.
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
"""Lifetime of the CA certificate, and the remaining lifetime at which it is renewed."""
LIFE, LEAST = timedelta(days=365), timedelta(days=90)
"""Lifetime of the certificates that the CA signs, and the remaining lifetime at which they are renewed."""
BACK = timedelta(hours=1)
"""Time by which certificates are backdated, for clients whose clocks are slow."""


class Pair(NamedTuple):
    """A certificate and its private key in PEM format."""

    certificate: bytes
    key: bytes


class UnreadableError(ValueError):
    """The certificate or its key is invalid. The message quotes neither."""


def authority(now: datetime, before: Pair | None) -> Pair:
    """Return the certificate and key of the CA: ``before`` if it is valid for long enough, otherwise a renewed
    certificate with the same key or, if ``before`` is None, a new pair.

    Raise UnreadableError if ``before`` is invalid.
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
    """Issue a server certificate for these DNS names and IP addresses, and return it with its key. The first name is
    also the common name. Raise UnreadableError if ``issuer`` is invalid, or ValueError for an invalid name."""
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
    """Return the reason why a server needs a new certificate, or an empty string if its certificate is still good.
    ``pair`` is its certificate, and ``names`` contains all names that it must have. Raise UnreadableError if ``issuer``
    is invalid."""
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
    """Return a builder for a certificate, with the fields that all certificates have in common."""
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
        pass  # never show the content
    raise UnreadableError("it has no certificate with its key")


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
