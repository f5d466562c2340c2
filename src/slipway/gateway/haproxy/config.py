"""The text of haproxy.cfg: settings and table in, configuration out. Pure.

What changes with the cluster stands in three maps and in the backends at the end; all of it can also be changed at run
time, so that this text is read again only when HAProxy starts. Backends made at run time inherit the section ``model``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

from slipway.gateway import errors, memory
from slipway.gateway.memory import BUFFER, SMALL_BUFFER
from slipway.gateway.routing.balancing import ENDPOINT_COOKIE, server_name
from slipway.gateway.routing.selector import HEADER
from slipway.gateway.routing.table import Backend, RoutingTable
from slipway.gateway.rules import beside, connections, cors, jwt, limits, rewrite, targets, tokens, unanswered
from slipway.gateway.rules import page as access
from slipway.gateway.rules.jwks import VerificationKey
from slipway.gateway.settings import Settings, address
from slipway.serving.routing import paths

MODEL_DEFAULTS = "model"
"""Name of the ``defaults`` section of every model's backend."""
TTFB_TABLE = "time_to_first_byte"
"""Stick table: milliseconds and number of first bytes, by backend."""
_OURS = r"cookie|http2-settings|keep-alive|proxy-.*|te|upgrade|x-request-id|x-slipway-.*"
"""Headers that engines do not get from clients. A cookie chooses the endpoint, and x-slipway- steers requests between
our own sections, so only we set them."""
_OF_PROXIES = r"forwarded|x-forwarded-.*|x-real-ip"
"""Headers that are believed from trusted proxies alone."""
_BODIES = "bodies"
"""Stick table: large bodies by ticket."""
_BODY_SECONDS = 60
_H2_STREAMS = 32
_TURN_AROUND = "10ms"
_OLD_PROCESSES = 2
_ALONE = "txn.alone"
"""Variable that is unique to a request which must not take an idle connection; unset for those that may."""
_CONNECTION_NAME = f"var(txn.attempt,0),add(1),set-var(txn.attempt),concat(-,{_ALONE})"
"""HAProxy evaluates this name for each attempt. Requests share idle connections of the same name. All idle connections
of a server die with it, so a retry must not use another of them, or all retries may fail before one connects."""
PATHS_MAP, LACKS_MAP = "paths.map", "lacks.map"
PLAIN_MAP, SPECIAL_MAP = "plain.map", "special.map"
MODELS_MAP, RINGS_MAP = "models.map", "rings.map"
VERSION_VARIABLE = "proc.slipway_version"
"""Process variable that tells which static part is running."""

BEGIN = 4096
"""Bytes of a body in which most prompts begin."""

SEARCHED = 1 << 20
"""Bytes in which a prompt is searched for at all, so that nobody can order long work."""

SMALL_BODY = 8192
"""Up to this size one PCRE2 match that reads all of the JSON is cheaper than entering Lua."""

REPEATED = BUFFER - 8192
"""Size of a body that fits a buffer beside a header of usual size, and what HAProxy keeps there for itself."""

# One object, strictly read, that has exactly one plain key "model" with a plain non-empty string, and no escaped key
# beside it, nor "model" in other case. Everything is possessive or decided by its first character, so a failed match
# costs no backtracking.
_SPACE = r"(?<w>[ \t\r\n]*+)"
_STRING = r'(?<s>"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")'
_NUMBER = r"(?<n>-?+(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?+[0-9]++)?+)"
_PAIR = r"(?&s)(?&w):(?&w)(?&v)(?&w)"
_VALUE = (
    rf"(?<v>(?&s)|\{{(?&w)(?:{_PAIR}(?:,(?&w){_PAIR})*+)?+\}}"
    r"|\[(?&w)(?:(?&v)(?&w)(?:,(?&w)(?&v)(?&w))*+)?+\]|true|false|null|(?&n))"
)
_OTHER = r'(?<o>(?!"(?i:model)")"[^"\\\x00-\x1f]*+"(?&w):(?&w)(?&v)(?&w))'
_NAME = r'"model"(?&w):(?&w)"([^"\\\x00-\x1f\x7f]++)"(?&w)'
PLAIN_BODY = (
    rf"^(?(DEFINE){_STRING}{_NUMBER}{_SPACE}{_VALUE}{_OTHER})"
    rf"(?&w)\{{(?&w)(?:(?&o),(?&w))*+{_NAME}(?:,(?&w)(?&o))*+\}}(?&w)\z"
)
_NAME_GROUP = 6
"""The group that holds the name: behind those that have names."""

LOG_FORMAT = (
    "\"%{+json}o %(time)[accept_date(ms),ms_utime('%Y-%m-%dT%H:%M:%S.%3NZ')] %(request_id)[var(txn.id)] %(client)ci"
    " %(method)HM %(path)HPO %(model)[var(txn.shown)] %(key)[var(txn.key)] %(status:sint)ST %(bytes_in:sint)U"
    " %(bytes_out:sint)B %(duration_ms:sint)Ta %(first_byte_ms:sint)Tr %(backend)[var(txn.be)] %(server)s"
    ' %(retries:sint)rc %(hold)[var(txn.hold)] %(end)ts"'
)


def configuration(settings: Settings, table: RoutingTable, keys: Sequence[VerificationKey] = ()) -> str:
    """The whole file. Equal input gives equal text. `keys` verify tokens."""
    backends = (backend_section(settings, backend) for backend in table.backends.values())
    return "\n".join([_static(settings), *jwt.certificates(settings, keys), *backends, ""])


def version(settings: Settings) -> str:
    """Changes when the static part changes; HAProxy carries it in a variable."""
    return hashlib.sha256(_sections(settings).encode()).hexdigest()[:16]


def server(endpoint: str) -> str:
    """Address and options of an endpoint's server, in the file as on the command line."""
    return f"{endpoint} cookie {server_name(endpoint)} pool-conn-name {_CONNECTION_NAME} {unanswered.CHECK}"


def servers(run_directory: str, backend: Backend) -> dict[str, str]:
    """Address and options of a backend's servers, by their names."""
    last = {unanswered.NAME: f"{unanswered.server(run_directory)} backup"}
    return {server_name(endpoint): server(endpoint) for endpoint in backend.endpoints} | last


def backend_section(settings: Settings, backend: Backend) -> str:
    """Section of one model's backend."""
    lines = [f"    server {name} {text}" for name, text in servers(settings.run_directory, backend).items()]
    return "\n".join([f"backend {backend.name} from {MODEL_DEFAULTS}", *lines, ""])


def _static(settings: Settings) -> str:
    return _sections(settings).replace("@VERSION@", version(settings))


def _sections(settings: Settings) -> str:
    sections = (_global(settings), _defaults(settings), _frontend(settings), _internal(settings))
    return "\n\n".join(sections) + "\n"


def _public(settings: Settings) -> tuple[str, int]:
    """Where this process, or the one that replaces it, can be reached from within the pod."""
    host, port = address(settings.listen)
    return ("127.0.0.1" if host in ("", "0.0.0.0", "::") else host), port  # noqa: S104


def _global(settings: Settings) -> str:
    run = settings.run_directory
    host, port = _public(settings)
    return f"""\
# Written by the gateway's control process; changes are lost.
global
    log stdout len 4096 format raw daemon
    maxconn {connections.total(settings)}
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
{_buffers(settings)}    # A body is read whole before its model is known.
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
    lua-load-per-thread {run}/lua/paths.lua {beside.arguments()}
    lua-load-per-thread {run}/lua/responses.lua
    lua-load-per-thread {run}/lua/guard.lua {SMALL_BODY}
    lua-load-per-thread {run}/lua/unknown_model.lua
    lua-load-per-thread {run}/lua/prefix.lua
    lua-load-per-thread {run}/lua/forms.lua
    lua-load-per-thread {run}/lua/rewrite.lua
    lua-load-per-thread {run}/lua/labels.lua {run}/labels.map
    lua-load-per-thread {run}/lua/headers.lua
    lua-load-per-thread {run}/lua/servers.lua
{targets.start(settings)}
{jwt.start(settings)}{tokens.start(settings)}{limits.start(settings)}\
    lua-load {run}/lua/bodies.lua {_bodies_arguments(settings)}
    lua-load {run}/lua/hold.lua {_hold_arguments(settings)} {host} {port}"""


def _buffers(settings: Settings) -> str:
    most = memory.buffers(settings.threads, settings.max_body_bytes, settings.memory_bytes)
    return f"    tune.buffers.limit {most}\n" if most else ""


def _bodies_arguments(settings: Settings) -> str:
    largest = settings.max_body_bytes
    pooled = memory.for_buffers(settings.threads, largest, settings.memory_bytes)
    return f"{max(settings.body_bytes, largest)} {largest} {pooled} {memory.large_buffer(largest)}"


def _hold_arguments(settings: Settings) -> str:
    usual = f"{settings.hold_seconds} {settings.hold_requests}"
    woken = f"{settings.wake_seconds} {settings.wake_requests} {settings.run_directory}/wake.map"
    return f"{usual} {woken} {settings.run_directory}/hold.map {settings.hold_bytes}"


def _defaults(settings: Settings) -> str:
    run = settings.run_directory
    files = "\n".join(_error_of_status(error, run) for error in errors.BY_STATUS)
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
    http-response deny deny_status 502 if {{ status 101 }} !{{ var({beside.TUNNEL}) -m found }}
    http-response sc-add-gpc(0,0) res.timer.hdr
    http-response sc-inc-gpc(1,0)"""


def _error_of_status(error: errors.ErrorResponse, run: str) -> str:
    """What is answered with a status that HAProxy makes up. Some are made before there is a request."""
    if error.status not in errors.OF_REQUESTS:
        return f"    errorfile {error.status} {run}/errors/{error.status}.http"
    return f"    {errors.http_error(error)}"


def _frontend(settings: Settings) -> str:
    parts = (
        _listen(settings),
        f"    log-format {tokens.log_format(LOG_FORMAT.replace('txn.key', jwt.holder(settings)), settings)}",
        *tokens.sections(settings),
        connections.track(settings),
        _known(settings),
        _health(settings),
        _request_id(),
        *cors.rules(settings),
        _kind(settings),
        connections.track_streams(settings),
        *((access.before_keys(),) if settings.ui else ()),
        limits.HANDSHAKE,
        _keys(settings),
        *((access.after_keys(),) if settings.ui else ()),
        _paths(),
        *limits.rules(settings),
        _headers(settings),
        _body(settings),
        *tokens.rules(settings),
        _route(settings),
        _hold(settings.run_directory),
        limits.forget(),
        _endpoint(settings),
        _leave(settings),
    )
    return "\n\n".join(parts)


def _listen(settings: Settings) -> str:
    return f"""\
frontend public from base
    bind {_bound(settings)}
    maxconn {connections.client_limit(settings)}
    log global
    option dontlognull"""


def _bound(settings: Settings) -> str:
    """Address of HAProxy's listener. Without a host one socket takes both families."""
    host, port = address(settings.listen)
    return f"{host}:{port}" if host not in ("", "::") else f":::{port} v4v6"


def _headers(settings: Settings) -> str:
    """What is meant for one hop ends here, and so does what only a proxy in front of us can know."""
    # One regular expression costs a quarter of what a rule for each name does.
    dropped = f"    http-request del-header ^({_OURS}|{_OF_PROXIES})$ -m reg"
    if settings.trusted_proxies:
        dropped = f"""\
    http-request del-header ^({_OURS})$ -m reg
    http-request del-header ^({_OF_PROXIES})$ -m reg unless trusted
    # Limits for each client, and the access log, are about those behind the proxy.
    http-request set-src req.hdr_ip(x-forwarded-for,-1) if trusted {{ req.hdr_ip(x-forwarded-for,-1) -m found }}"""
    return f"""\
    http-request set-var(txn.upgrade) req.fhdr(upgrade) unless known
    http-request lua.drop_named if {{ req.fhdr(connection) -m found }}
{dropped}
    http-request allow unless known
    option forwardfor if-none"""


def _known(settings: Settings) -> str:
    """Sets the number of the path; none if the path is not a model's. Comes first: most rules about other
    paths then end at one look at a variable."""
    return f"""\
    http-request set-var(txn.kind) {_number(settings)}
    acl known var(txn.kind) -m found"""


def _number(settings: Settings) -> str:
    return f"path,map_str_int({settings.run_directory}/{PATHS_MAP})"


def _health(settings: Settings) -> str:
    return f"""\
    acl probe path /healthz /readyz
    http-request set-log-level silent if !known probe
    acl ready str(ready),map_str({settings.run_directory}/state.map) -m found
    http-request return status 503 content-type text/plain string "not ready" if !known {{ path /readyz }} !ready
    http-request return status 200 content-type text/plain string ok if !known probe"""


def _request_id() -> str:
    # The header is written by unique-id-header, as set-header costs several times the instructions.
    return """\
    acl proper_id req.fhdr(x-request-id) -m reg '^[A-Za-z0-9._:=+/-]{1,128}\\z'
    http-request set-var(txn.id) req.fhdr(x-request-id) if proper_id
    http-request set-var(txn.id) uuid() unless { var(txn.id) -m found }
    unique-id-format %[var(txn.id)]
    unique-id-header x-request-id
    http-after-response set-header x-request-id %[var(txn.id)] if { var(txn.id) -m found }"""


def _keys(settings: Settings) -> str:
    if not settings.api_keys_secret:
        return "    # No API keys are asked for."
    return limits.identify(settings)


def _kind(settings: Settings) -> str:
    """Other names of paths. Errors have the shape that belongs to the path, so this comes before the first of them."""
    return f"""\
    http-request set-path %[path,regsub(^/openai,)] if !known {{ path_beg /openai/v1/ }}
    http-request set-var(txn.kind) {_number(settings)} unless known
    http-request set-var(txn.leads) str(control) if !known {{ path /v1/models }} || !known {{ path_beg /v1/models/ }}
    http-request lua.other_path if !known !{{ var(txn.leads) -m found }}"""


def _paths() -> str:
    return f"""\
    http-request {errors.return_rule(errors.WRONG_METHOD)} if !{{ method POST }} known
    http-request lua.refuse_path unless known
    http-request allow if !known {{ var(txn.leads) -m str control }}"""


def _body(settings: Settings) -> str:
    limit = settings.max_body_bytes
    too_large = errors.return_rule(errors.TOO_LARGE)
    return f"""\
    # By the announced size first, then by what came.
    http-request {too_large} if {{ req.body_size gt {limit} }}
    http-request wait-for-body time {_BODY_SECONDS}s
    # What fills an ordinary buffer gets a large one when there is room for it. Rules without a condition do nothing to
    # others, and cost less than asking.
{_LARGE}    http-request set-var(txn.ticket) uuid() if large
    http-request track-sc2 var(txn.ticket) table {_BODIES}
    http-request lua.begin_body if large
    # Returns at once, and clears the timer that a wait in Lua has left: the next one would take it for its own.
    http-request wait-for-body time {_BODY_SECONDS}s
    http-request wait-for-body time {_BODY_SECONDS}s use-large-buffer
    http-request sc-inc-gpc0(2)
    http-request {too_large} if {{ req.body_len gt {limit} }}
    acl form var(txn.kind) -m int ge {paths.FIRST_FORM}
    http-request lua.read_form if form
    acl small req.body_len le {SMALL_BODY}
    # A regular expression reads text, and a body becomes text up to its first NUL: bodies with more are Lua's.
    http-request set-var(req.text) req.body,concat() if !form small
    http-request set-var(req.text_len) var(req.text),length
    acl entire req.body_len,sub(req.text_len) -m int 0
    http-request set-var(txn.model) var(req.text),map_regm({settings.run_directory}/{PLAIN_MAP}) if entire
    http-request unset-var(req.text)
    http-request lua.read_model if !form !{{ var(txn.model) -m found }}
    http-request lua.refuse unless {{ var(txn.model) -m found }}"""


def _route(settings: Settings) -> str:
    run = settings.run_directory
    return f"""\
    http-request set-var(txn.be) var(txn.model),map_str({run}/{MODELS_MAP})
    http-request set-var(txn.shown) var(txn.model),bytes(0,128)
{limits.restrict(settings)}\
    http-request lua.unknown_model unless {{ var(txn.be) -m found }}
{_ordinary(run)}
    http-request lua.select_model if {{ req.fhdr({HEADER}) -m found }}
    http-request lua.unknown_model if {{ var(txn.selected) -m str no }}
    http-request {errors.return_rule(errors.BAD_SELECTOR)} if {{ var(txn.selected) -m str bad }}
{targets.rules(run, _lacks(run, "txn.kind"))}
{_LAST_RULES}
{rewrite.rules(run)}"""


def _ordinary(run: str) -> str:
    """Ends the rules for small requests that no further rule would change. Most requests are such ones."""
    special = f"!{{ var(txn.model),map_str({run}/{SPECIAL_MAP}) -m found }}"
    held = f"!{{ var(txn.be),map_str({run}/hold.map) -m found }}"
    return f"""\
    http-request set-var(req.ordinary) bool(true)\
 if {{ var(req.text_len) -m found }} !{{ req.fhdr({HEADER}) -m found }} {special} {held} {{ var(txn.be),nbsrv gt 0 }}
    acl ordinary var(req.ordinary) -m found
{_TRACK} if ordinary
{limits.forget("ordinary")}
    http-request allow if ordinary"""


def special_models(maps: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """IDs of models that need more rules: for several targets, paths that an engine lacks, prefixes or another name."""
    backends = {name for file in (targets.TARGETS_MAP, LACKS_MAP, RINGS_MAP) for name in maps[file]}
    names = maps[rewrite.NAMES_MAP]
    return {model: "1" for model, backend in maps[MODELS_MAP].items() if backend in backends or model in names}


def _lacks(run: str, variable: str) -> str:
    """The condition of a request whose engine does not know the path of the number in `variable`."""
    return f"var(txn.be),map_str_int({run}/{LACKS_MAP}),and({variable}) -m int gt 0"


def _hold(run: str) -> str:
    """Comes late: between this look at the endpoints and the choice of one of them the last could go."""
    held, empty = f"{{ var(txn.be),map_str({run}/hold.map) -m found }}", "!{ var(txn.be),nbsrv gt 0 }"
    return f"""\
    http-request lua.hold if {held} !{targets.ROUTED} || {empty} !{targets.ROUTED}
{_AFTER_HOLD}"""


def _prompts() -> dict[str, list[str]]:
    """Paths whose requests have a prompt, by the field that holds it."""
    fields = dict.fromkeys(one.prompt for one in paths.PATHS if one.prompt)
    return {field: [one.path for one in paths.PATHS if one.prompt == field] for field in fields}


def _endpoint(settings: Settings) -> str:
    """For models with PrefixHash; no rules follow for others. Looks at a body's begin first, as Lua copies what it is
    given."""
    rules = "\n".join(
        f"    http-request set-var(txn.endpoint) req.body{part},lua.opening({field}),xxh64,lua.endpoint"
        f" if {{ path {' '.join(prompt_paths)} }}{condition}"
        for part, condition in ((f",bytes(0,{BEGIN})", ""), (f",bytes(0,{SEARCHED})", " !chosen !begun"))
        for field, prompt_paths in _prompts().items()
    )
    return f"""\
    http-request set-var(txn.ring) var(txn.be),map_str({settings.run_directory}/{RINGS_MAP})
    acl hashed var(txn.ring) -m found
    http-request allow unless hashed
    acl chosen var(txn.endpoint) -m len gt 0
    acl begun req.body_len le {BEGIN}
    http-request set-var(txn.endpoint) var(txn.ring),lua.ring
{rules}
    http-request add-header cookie {ENDPOINT_COOKIE}=%[var(txn.endpoint)] if chosen"""


def _leave(settings: Settings) -> str:
    page = "    use_backend control if page\n" if settings.ui else ""
    return f"""\
{page}    use_backend %[var(txn.leads)] unless known
    use_backend successor if {{ var(txn.hold) -m str moved }}
    use_backend turns if {targets.ROUTED}
    use_backend rewrite if {rewrite.CHANGED}
    use_backend %[var(txn.be)]"""


_LARGE = f"    acl large req.body_len gt {REPEATED}\n"

_AFTER_HOLD = f"""\
    http-request {errors.return_rule(errors.TOO_MANY)} if {{ var(txn.hold) -m str full }}
    http-request reject if {{ var(txn.hold) -m str left }}
    http-request lua.unready_model if {{ var(txn.hold) -m str timeout failed }}"""

_TRACK = f"    http-request track-sc0 var(txn.be) table {TTFB_TABLE}"

_LAST_RULES = f"""\
    # An idle connection may close just when it is taken. HAProxy repeats what fits a plain buffer, and drops the rest
    # without a word: so larger requests get a connection of their own, which is not kept.
    http-request set-var({_ALONE}) var(txn.id) if large
    http-request set-header connection close if large
{_TRACK}"""


def _session_hold(run: str) -> str:
    """The same for sessions, which alone of the requests without a body wait."""
    held = f"{{ var(txn.be),map_str({run}/hold.map) -m found }}"
    return f"""\
    http-request lua.hold if session {held} || session !{{ var(txn.be),nbsrv gt 0 }}
{_AFTER_HOLD}"""


def _internal(settings: Settings) -> str:
    lacking = _lacks(settings.run_directory, "txn.asked")
    host, port = _public(settings)
    return f"""\
# The model list, by the control process.
backend control from base
    http-request del-header {limits.HEADERS} -m reg
{limits.introduce(settings)}    server control unix@{settings.run_directory}/control.sock

# Whoever listens on the public port now: for requests that waited in this process when a reload replaced it.
backend successor from base
    server successor {host}:{port}

{rewrite.sections(settings, _LARGE + _LAST_RULES)}

{beside.sections(settings, _session_hold(settings.run_directory), lacking, _LARGE + _LAST_RULES, REPEATED)}

{unanswered.sections(settings, _AFTER_HOLD, _LARGE + _LAST_RULES)}

{_turn(settings)}

backend {TTFB_TABLE} from base
    stick-table type string len 128 size 20k store gpc(2)

{connections.tables()}

backend {_BODIES} from base
    stick-table type string len 36 size 100k expire 10s store conn_cur,gpc0
{limits.sections(settings)}{tokens.tables(settings)}"""


def _turn(settings: Settings) -> str:
    run = settings.run_directory
    reading = f"""\
    acl form var(txn.kind) -m int ge {paths.FIRST_FORM}
    http-request lua.read_form if form"""
    last_rules = f"{_LARGE}{_LAST_RULES}\n{rewrite.rules(run)}"
    return targets.sections(settings, reading, _AFTER_HOLD, last_rules, rewrite.CHANGED)


def paths_map() -> str:
    """Map of the paths that take a body with a model, and the number of each."""
    return _lines(f"{one.path} {paths.BITS[one.path]}" for one in paths.PATHS)


def plain_map() -> str:
    """Map of the one form of small bodies that is beyond doubt, and the place of the model's name in it."""
    pattern = PLAIN_BODY.replace(" ", r"\x20")  # a space ends the key of a map
    return _lines([f"{pattern} \\{_NAME_GROUP}"])


def lacks_map(table: RoutingTable) -> dict[str, str]:
    """By backend whose route says what its engine serves: the set of the paths that it does not."""
    lacking = {name: paths.unknown(backend.route.paths) for name, backend in table.backends.items()}
    return {name: str(bits) for name, bits in lacking.items() if bits}


def map_text(entries: dict[str, str]) -> str:
    """A map file: one ``key value`` a line, sorted."""
    return _lines(f"{key} {value}" for key, value in sorted(entries.items()))


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
