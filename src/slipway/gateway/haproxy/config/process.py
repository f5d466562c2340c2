"""The sections ``global`` and ``defaults``. Pure."""

from __future__ import annotations

from slipway.gateway import errors, memory
from slipway.gateway.haproxy.config.bodies import SMALL_BODY_BYTES
from slipway.gateway.haproxy.config.servers import MODEL_DEFAULTS
from slipway.gateway.memory import BUFFER, SMALL_BUFFER
from slipway.gateway.routing.balancing import ENDPOINT_COOKIE
from slipway.gateway.rules import connections, jwt, limits, query_models, targets, tokens
from slipway.gateway.settings import Settings, split_address

VERSION_VARIABLE = "proc.slipway_version"
"""Process variable that tells which static part is running."""
_H2_STREAMS = 32
_TURN_AROUND = "10ms"
_OLD_PROCESSES = 2


def public_address(settings: Settings) -> tuple[str, int]:
    """Where this process, or the one that replaces it, can be reached from within the pod."""
    host, port = split_address(settings.listen)
    return ("127.0.0.1" if host in ("", "0.0.0.0", "::") else host), port  # noqa: S104


def global_section(settings: Settings) -> str:
    run = settings.run_directory
    host, port = public_address(settings)
    return f"""\
# Written by the gateway's control process; changes are lost.
global
    log stdout len 4096 format raw daemon
    maxconn {connections.total_connections(settings)}
    nbthread {settings.threads}
    hard-stop-after {settings.drain_seconds}s
    # Each reload leaves a process that ends its streams. They share the memory, so they must not pile up.
    mworker-max-reloads {_OLD_PROCESSES}
    stats socket {run}/haproxy.sock mode 600 level admin
    stats timeout 60s
{tokens.sockets(settings)}    tune.stick-counters {tokens.slots(settings, connections.SLOTS)}
    set-var {VERSION_VARIABLE} str(@VERSION@)
    tune.bufsize {BUFFER}
    tune.bufsize.small {SMALL_BUFFER}
    # As many free buffers as 32 requests use stay with their thread: sharing them costs more than they hold.
    tune.memory.hot-size {64 * BUFFER}
{_buffer_limit(settings)}    # A body is read whole before its model is known.
    tune.bufsize.large {memory.large_buffer(settings.max_body_bytes)}
    # So many requests of one connection may be under way: one connection is not to be a way around maxConnections.
    tune.h2.fe.max-concurrent-streams {_H2_STREAMS}
    # A pause between two rules would let the last endpoint go after it was looked for. There are no loops among them.
    tune.max-rules-at-once 1000
    tune.lua.bool-sample-conversion normal
    tune.lua.log.stderr auto
    # The looks of a request that waits add up, over minutes and on a busy machine to more than the usual limit of 4 s.
    tune.lua.session-timeout {max(settings.hold_seconds, settings.wake_seconds)}s
    lua-prepend-path {run}/lua/?.lua
    lua-load-per-thread {run}/lua/errors.lua
    lua-load-per-thread {run}/lua/paths.lua {query_models.arguments()}
    lua-load-per-thread {run}/lua/responses.lua
    lua-load-per-thread {run}/lua/guard.lua {SMALL_BODY_BYTES}
    lua-load-per-thread {run}/lua/unknown_model.lua
    lua-load-per-thread {run}/lua/prefix.lua
    lua-load-per-thread {run}/lua/forms.lua
    lua-load-per-thread {run}/lua/rewrite.lua
    lua-load-per-thread {run}/lua/labels.lua {run}/labels.map
    lua-load-per-thread {run}/lua/headers.lua
    lua-load-per-thread {run}/lua/servers.lua
{targets.global_lines(settings)}
{jwt.global_lines(settings)}{tokens.global_lines(settings)}{limits.global_lines(settings)}\
    lua-load {run}/lua/bodies.lua {_bodies_arguments(settings)}
    lua-load {run}/lua/hold.lua {_hold_arguments(settings)} {host} {port}"""


def _buffer_limit(settings: Settings) -> str:
    most = memory.max_buffers(settings.threads, settings.max_body_bytes, settings.memory_bytes)
    return f"    tune.buffers.limit {most}\n" if most else ""


def _bodies_arguments(settings: Settings) -> str:
    largest = settings.max_body_bytes
    pooled = memory.buffer_budget(settings.threads, largest, settings.memory_bytes)
    return f"{max(settings.body_bytes, largest)} {largest} {pooled} {memory.large_buffer(largest)}"


def _hold_arguments(settings: Settings) -> str:
    usual = f"{settings.hold_seconds} {settings.hold_requests}"
    woken = f"{settings.wake_seconds} {settings.wake_requests} {settings.run_directory}/wake.map"
    return f"{usual} {woken} {settings.run_directory}/hold.map {settings.hold_bytes}"


def defaults_sections(settings: Settings) -> str:
    run = settings.run_directory
    files = "\n".join(_error_line(error, run) for error in errors.BY_STATUS)
    return f"""\
defaults base
    mode http
    # One by one: HAProxy 3.4.7 crashes when a backend that inherits a group of them (errorfiles) is made at run time.
{files}
    option abortonclose
    option idle-close-on-response
    option http-no-delay
    timeout connect {settings.connect_seconds}s
    timeout client {settings.stream_idle_seconds}s
    timeout server {settings.stream_idle_seconds}s
    timeout queue {settings.stream_idle_seconds}s
    # For headers. A body has a time of its own, see wait-for-body.
    timeout http-request 10s
    timeout http-keep-alive 75s
    # A connection that was refused or closed before any answer is tried again, on another server where there is one.
    # An answer is never asked for twice: generating it has cost an engine's time.
    retries 5
    retry-on conn-failure empty-response
    option use-small-buffers l7-retries
    option redispatch 1

defaults {MODEL_DEFAULTS} from base
    # So long HAProxy waits before it tries another server in the place of a model's only one. The rule has the time to
    # connect.
    timeout connect {_TURN_AROUND}
    http-request set-timeout connect {settings.connect_seconds}s
    balance leastconn
    cookie {ENDPOINT_COOKIE} indirect
    http-reuse always
    # HAProxy remembers that a client asked for another protocol, also when the header Upgrade was taken off.
    http-response deny deny_status 502 if {{ status 101 }} !{{ var({query_models.TUNNEL}) -m found }}
    http-response sc-add-gpc(0,0) res.timer.hdr
    http-response sc-inc-gpc(1,0)"""


def _error_line(error: errors.ErrorResponse, run: str) -> str:
    """What is answered with a status that HAProxy makes up. Some are made before there is a request."""
    if error.status not in errors.OF_REQUESTS:
        return f"    errorfile {error.status} {run}/errors/{error.status}.http"
    return f"    {errors.http_error(error)}"
