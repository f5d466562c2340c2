"""Sends each model one small request through the gateway, all at once, and prints how each answered.

Runs in a pod of the gateway. The argument is JSON: ``models``, ``seconds`` for each, and ``secret``, the name of the
Secret with API keys, of which it reads one itself: so no key is in a command or in an output.
"""

from __future__ import annotations

import base64
import io
import json
import ssl
import sys
import time
import urllib.error
import urllib.request
import wave
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

GATEWAY = "http://slipway-gateway/v1"
RIGHTS = "slipway.inference/key-rights"
NARROWING = {"models", "selector", "ends"}
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
CHAT = ("chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1})
TEXT = ("completions", {"prompt": "Hello", "max_tokens": 1})
EMBED = ("embeddings", {"input": "Hello"})
RANK = ("rerank", {"query": "Hello", "documents": ["Hello", "Goodbye"]})
HEAR: tuple[str, dict[str, Any]] = ("audio/transcriptions", {})
# Feature -> what to send, the likeliest first. A model that tells no feature may be any but the last two.
REQUESTS = {"TextGeneration": (CHAT, TEXT), "TextEmbedding": (EMBED,), "Reranking": (RANK,), "SpeechToText": (HEAR,)}
UNTOLD = (CHAT, TEXT, EMBED)


def fetched(url: str, headers: dict[str, str], **options: Any) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10, **options) as answer:
        return json.load(answer)


def api_key(secret: str) -> str:
    namespace = (ACCOUNT / "namespace").read_text()
    headers = {"Authorization": "Bearer " + (ACCOUNT / "token").read_text()}
    authority = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    url = f"https://kubernetes.default.svc/api/v1/namespaces/{namespace}/secrets/{secret}"
    return usable_key(fetched(url, headers, context=authority))


def usable_key(secret: Any) -> str:
    """A key that may use every model: one without rights, else one that is only limited in number. If there is neither,
    the first key."""
    keys = {name: base64.b64decode(value).decode().strip() for name, value in sorted(secret["data"].items())}
    try:
        rights = dict(json.loads(secret["metadata"]["annotations"][RIGHTS]))
    except (KeyError, TypeError, ValueError):
        rights = {}
    names = [name for name, key in keys.items() if key]

    def restriction(name: str) -> tuple[bool, bool]:
        own = rights.get(name)
        return isinstance(own, dict) and not NARROWING.isdisjoint(own), name in rights

    return keys[min(names, key=restriction)]


def features(headers: dict[str, str]) -> dict[str, list[str]]:
    """Of each model. The list has text generators; others are listed for those who ask for what they can do."""
    others = "?" + "&".join(f"feature={feature}" for feature in REQUESTS)
    cards = [card for query in ("", others) for card in fetched(f"{GATEWAY}/models{query}", headers)["data"]]
    return {card["id"]: card.get("features") or [] for card in cards}


def speech(model: str) -> bytes:
    """A form with a tenth of a second of silence."""
    sound = io.BytesIO()
    with wave.open(sound, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(16000)
        written.writeframes(bytes(3200))
    part = b"--part\r\nContent-Disposition: form-data; name="
    file = b'"file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\n'
    return b"\r\n".join([part + b'"model"\r\n\r\n' + model.encode(), part + file + sound.getvalue(), b"--part--\r\n"])


def send(headers: dict[str, str], seconds: float, model: str, path: str, body: dict[str, Any]) -> tuple[int, str]:
    """Status, and what was said in place of an answer."""
    if body:
        data, kind = json.dumps({"model": model, **body}).encode(), "application/json"
    else:
        data, kind = speech(model), "multipart/form-data; boundary=part"
    request = urllib.request.Request(f"{GATEWAY}/{path}", data, {**headers, "Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            answer.read()
            return answer.status, ""
    except urllib.error.HTTPError as error:
        return error.code, error.read(500).decode(errors="replace")
    except OSError as error:
        return 0, str(error)


def ask(headers: dict[str, str], seconds: float, model: str, known: list[str]) -> dict[str, Any]:
    """How it answered the first request that it took; where it took none, what it said to the likeliest one."""
    started, replies = time.monotonic(), []
    for path, body in next((REQUESTS[feature] for feature in known if feature in REQUESTS), UNTOLD):
        status, said = send(headers, seconds, model, path, body)
        took = round(time.monotonic() - started, 2)
        replies.append({"status": status, "path": path, "seconds": took, "said": said})
        if 200 <= status < 400:
            return replies[-1]
        # Only a model that refuses this request may take another one.
        if status not in (400, 404, 405, 415, 422, 501):
            break
    return replies[0]


def main(models: list[str], seconds: float, secret: str) -> None:
    headers = {"Authorization": "Bearer " + api_key(secret)} if secret else {}
    known = features(headers)
    with ThreadPoolExecutor(8) as pool:
        asked = {model: pool.submit(ask, headers, seconds, model, known.get(model, [])) for model in models}
        print(json.dumps({model: future.result() for model, future in asked.items()}))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
