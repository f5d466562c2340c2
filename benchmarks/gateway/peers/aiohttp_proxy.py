"""A gateway on aiohttp and uvloop, one process: key check, model from the body, least requests in flight. A peer.

usage: aiohttp_proxy.py PORT KEY UPSTREAM...
"""

import json
import sys
from dataclasses import dataclass

import uvloop
from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

# Of this connection alone, or set anew by the library.
SKIPPED = {"connection", "keep-alive", "transfer-encoding", "content-length", "host", "authorization"}


@dataclass
class Endpoint:
    url: str
    in_flight: int = 0


def kept(headers):
    return {name: value for name, value in headers.items() if name.lower() not in SKIPPED}


def refuse(status, message):
    return web.json_response({"error": {"message": message}}, status=status)


class Gateway:
    def __init__(self, key, upstreams):
        self._expected = f"Bearer {key}"
        self._models = {"bench": [Endpoint(url) for url in upstreams]}

    async def session(self, _app):
        connector, timeout = TCPConnector(limit=0), ClientTimeout(total=None)
        async with ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as self._session:
            yield

    async def proxy(self, request):
        if request.headers.get("Authorization") != self._expected:
            return refuse(401, "wrong key")
        body = await request.read()
        try:
            endpoints = self._models.get(json.loads(body).get("model"))
        except (ValueError, AttributeError):
            return refuse(400, "no model")
        if not endpoints:
            return refuse(404, "unknown model")
        endpoint = min(endpoints, key=lambda one: one.in_flight)
        endpoint.in_flight += 1
        try:
            return await self._forward(request, endpoint.url, body)
        finally:
            endpoint.in_flight -= 1

    async def _forward(self, request, url, body):
        async with self._session.post(url + request.path_qs, data=body, headers=kept(request.headers)) as answer:
            if "Content-Length" in answer.headers:
                return web.Response(status=answer.status, headers=kept(answer.headers), body=await answer.read())
            response = web.StreamResponse(status=answer.status, headers=kept(answer.headers))
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
            await response.write_eof()
            return response


def main():
    port, key, *upstreams = sys.argv[1:]
    gateway = Gateway(key, upstreams)
    app = web.Application(client_max_size=1 << 28)
    app.cleanup_ctx.append(gateway.session)
    app.router.add_post("/{path:.*}", gateway.proxy)
    uvloop.install()
    web.run_app(app, host="127.0.0.1", port=int(port), access_log=None, print=None)


if __name__ == "__main__":
    main()
