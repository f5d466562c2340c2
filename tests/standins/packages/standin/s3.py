"""An S3 server to read from: ``python3 -m standin.s3 FOLDER``, where FOLDER holds ``<bucket>/<key>``.

Path style, version 4 signatures checked with ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit
from xml.sax.saxutils import escape

from .files import file_answer
from .web import Answer, Handler, Request, serve

PAGE = 1000
"""Keys of one page of a list, where the request does not ask for fewer."""


def application(root: Path, access_key: str, secret_key: str) -> Handler:
    def handle(request: Request) -> Answer:
        if problem := refusal(request, access_key, secret_key):
            return failed(403, problem)
        bucket, _slash, key = request.path.lstrip("/").partition("/")
        if request.method not in ("GET", "HEAD"):
            return failed(405, "MethodNotAllowed")
        if not bucket or not (root / bucket).is_dir():
            return failed(404, "NoSuchBucket")
        if not key:
            return listed(root / bucket, bucket, request)
        path = root / bucket / key
        if not path.is_file():
            return failed(404, "NoSuchKey")
        content = path.read_bytes()
        return file_answer(request, content, {"ETag": f'"{hashlib.md5(content).hexdigest()}"'})  # noqa: S324

    return handle


def failed(status: int, code: str) -> Answer:
    return Answer(f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode(), status, "application/xml")


def listed(folder: Path, bucket: str, request: Request) -> Answer:
    """ListObjectsV2: in the order of the keys, in pages."""
    prefix, size = request.query.get("prefix", ""), min(int(request.query.get("max-keys") or PAGE), PAGE)
    after = request.query.get("continuation-token") or request.query.get("start-after", "")
    walked = (Path(at) / name for at, _folders, names in os.walk(folder, followlinks=True) for name in names)
    keys = sorted(path.relative_to(folder).as_posix() for path in walked if "/.." not in path.as_posix())
    matches = [key for key in keys if key.startswith(prefix) and key > after]
    page, rest = matches[:size], matches[size:]
    rows = "".join(
        f"<Contents><Key>{escape(key)}</Key><Size>{(folder / key).stat().st_size}</Size>"
        f"<ETag>&quot;{hashlib.md5((folder / key).read_bytes()).hexdigest()}&quot;</ETag></Contents>"  # noqa: S324
        for key in page
    )
    more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if rest else ""
    text = (
        '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount>"
        f"<MaxKeys>{size}</MaxKeys><IsTruncated>{str(bool(rest)).lower()}</IsTruncated>{rows}{more}</ListBucketResult>"
    )
    return Answer(text.encode(), kind="application/xml")


# --- signatures ----------------------------------------------------------------------------------------------------


def refusal(request: Request, access_key: str, secret_key: str) -> str:
    """Code of the error; empty where the request is signed with the right key."""
    scheme, _space, rest = request.headers.get("authorization", "").partition(" ")
    if scheme != "AWS4-HMAC-SHA256":
        return "AccessDenied"
    parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    key, *scope = parts["Credential"].split("/")
    if key != access_key:
        return "InvalidAccessKeyId"
    canonical = canonical_request(request, parts["SignedHeaders"])
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join((scheme, request.headers["x-amz-date"], "/".join(scope), digest))
    signing = f"AWS4{secret_key}".encode()
    for step in scope:
        signing = hmac.digest(signing, step.encode(), "sha256")
    right = hmac.digest(signing, text.encode(), "sha256").hex()
    return "" if hmac.compare_digest(right, parts["Signature"]) else "SignatureDoesNotMatch"


def canonical_request(request: Request, signed: str) -> str:
    url = urlsplit(request.target)
    query = sorted(
        (quote(name, safe="-_.~"), quote(value, safe="-_.~"))
        for name, value in parse_qsl(url.query, keep_blank_values=True)
    )
    headers = "".join(f"{name}:{' '.join(request.headers.get(name, '').split())}\n" for name in signed.split(";"))
    query_string = "&".join(f"{name}={value}" for name, value in query)
    body = request.headers.get("x-amz-content-sha256", hashlib.sha256(request.body).hexdigest())
    return f"{request.method}\n{url.path}\n{query_string}\n{headers}\n{signed}\n{body}"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="standin.s3")
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("folder", type=Path)
    flags = parser.parse_args(arguments)
    keys = (os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"])
    serve(application(flags.folder, *keys), "0.0.0.0", flags.port)


if __name__ == "__main__":
    main(sys.argv[1:])
