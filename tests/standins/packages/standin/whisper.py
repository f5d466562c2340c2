"""faster-whisper-server, without a model: it tells in its transcript what it received."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping
from email.parser import BytesParser
from email.policy import HTTP
from typing import NamedTuple

from .web import Answer, Handler, Request, as_events, as_json, routes, serve


class Form(NamedTuple):
    fields: Mapping[str, str]
    files: Mapping[str, tuple[str, bytes]]
    """Field -> (name of the file, its bytes)."""


def parse_form(request: Request) -> Form:
    head = f"Content-Type: {request.headers.get('content-type', '')}\r\n\r\n".encode()
    message = BytesParser(policy=HTTP).parsebytes(head + request.body)
    fields, files = {}, {}
    for part in message.iter_parts() if message.is_multipart() else ():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True) or b""
        if part.get_filename() is None:
            fields[str(name)] = content.decode()
        else:
            files[str(name)] = (str(part.get_filename()), content)
    return Form(fields, files)


def application(model: str) -> Handler:
    """A request that names another model than this one fails, as the real one would try to download that."""

    def transcribe(request: Request) -> Answer:
        form = parse_form(request)
        model_name = form.fields.get("model", model)
        if model_name != model:
            return as_json({"detail": f"Model '{model_name}' could not be downloaded: no such repository"}, 404)
        if "file" not in form.files:
            return as_json({"detail": [{"loc": ["body", "file"], "msg": "Field required", "type": "missing"}]}, 422)
        name, content = form.files["file"]
        others = " ".join(f"{field}={form.fields[field]}" for field in sorted(form.fields))
        text = f"{name} {len(content)} bytes sha256 {hashlib.sha256(content).hexdigest()} {others}".strip()
        if form.fields.get("stream") == "true":
            return as_events({"text": word} for word in text.split())
        if form.fields.get("response_format", "json") == "text":
            return Answer(text.encode(), kind="text/plain; charset=utf-8")
        return as_json({"text": text})

    def models(_request: Request) -> Answer:
        card = {"id": model, "object": "model", "created": int(time.time()), "owned_by": "Systran"}
        return as_json({"object": "list", "data": [card]})

    return routes(
        {
            "GET /health": lambda _request: Answer(b"OK", kind="text/plain"),
            "GET /v1/models": models,
            "POST /v1/audio/transcriptions": transcribe,
            "POST /v1/audio/translations": transcribe,
        }
    )


def main(environment: Mapping[str, str]) -> None:
    time.sleep(float(environment.get("STANDIN_LOAD_SECONDS", "0")))
    port = int(environment.get("UVICORN_PORT", "8000"))
    serve(application(environment["WHISPER__MODEL"]), environment.get("UVICORN_HOST", "0.0.0.0"), port, keep_alive=5)


if __name__ == "__main__":
    main(os.environ)
