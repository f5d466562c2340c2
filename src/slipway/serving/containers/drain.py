"""A hook that lets a terminating pod finish its requests. Pure.

The hook runs in the engine's container. It checks the kernel's list of connections to the engine's port, and the
engine's number of requests. Both survive a restart of the controller, the gateway or the loader, and both include
clients that bypass the gateway.

The kernel's list comes first: without connections there are no requests. Open connections may be idle, such as those of
gateways and Prometheus, so the engine's metrics decide. Without metrics, every connection counts as a request if the
engine closes idle connections itself. Otherwise the engine gets a few more seconds.

An engine that does not return its metrics in time counts as busy: its requests may use its whole CPU or all of its
threads, as in llama.cpp. An engine that has ended needs no rule, because the kernel closes its connections.
"""

from __future__ import annotations

import msgspec

from slipway.kube.objects import Object

FALLBACK_SECONDS = 15
"""Seconds that a pod continues to serve if its image may lack a shell, so that no hook can check its requests."""
MARGIN_SECONDS = 15
"""Seconds that an engine has to stop after its last request or after the time limit."""
FAILED_SECONDS = 30
"""Seconds that a container has to stop after a failed startup or liveness probe. A longer time is useless, because the
container may hang with all of its requests."""
ENDED_BY = ("startupProbe", "livenessProbe")
"""Probes whose failure makes the kubelet stop the container."""
ANSWER_SECONDS = 3
"""Seconds after which an engine that has not returned its metrics counts as busy."""

# Prints the metrics, or "late" if the engine does not answer in time. Holds no single quote, for the shell.
READER = """\
import sys, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=int(sys.argv[2])).read().decode())
except OSError as error:
    if "timed out" in str(error): print("late")"""
# Arguments: the port, the time limit in seconds, what missing metrics mean ("busy" or "unknown"), names of metrics that
# are zero if no request is in flight. Ends after three checks without connections, or after twelve checks with
# connections if the engine was idle or never reported its requests. grep reads the files, because a shell would read
# them byte by byte. wget has one exit status for all failures, so an engine is late if one of them failed and took
# that long (/proc/uptime has hundredths of a second). A proxy does not lead to the container's own loopback.
SCRIPT = f"""\
command -v grep >/dev/null || exec sleep {FALLBACK_SECONDS}
limit={ANSWER_SECONDS} reader='{READER}'
"""
SCRIPT += """\
unset http_proxy HTTP_PROXY all_proxy ALL_PROXY
port=$(printf %04X "$1") url=http://127.0.0.1:$1/metrics end=$(($(date +%s) + $2)) quiet=0 told= silence=$3
shift 3
names=$(IFS='|'; echo "$*")
connected() { grep -q ":$port [0-9A-F]*:[0-9A-F]* 01 " /proc/net/tcp /proc/net/tcp6 2>/dev/null; }
clock() { read -r up _ </proc/uptime; up=${up%.*}${up#*.}; }
try() { clock; since=$up; "$@" || { clock; [ $((up - since)) -ge "${limit}00" ] && echo late; }; }
metrics() {
  try curl -sfm $limit "$url" || try wget -qO- -t 1 -T $limit "$url" || python3 -c "$reader" "$url" $limit
}
work() {
  [ -n "$names" ] && lines=$(metrics 2>/dev/null | grep -E "^(late$|($names)[{ ])") || { echo "$silence"; return; }
  if echo "$lines" | grep -qvE ' 0(\\.0+)?$'; then echo busy; else echo idle; fi
}
while [ $quiet -lt 12 ] && [ "$(date +%s)" -lt $end ]; do
  if ! connected; then quiet=$((quiet + 4))
  else
    case $(work)$told in
      busy*) quiet=0 told=told ;;
      idle*) quiet=$((quiet + 1)) told=told ;;
      unknowntold) quiet=0 ;;
      *) quiet=$((quiet + 1)) ;;
    esac
  fi
  sleep 1 || exit
done
"""


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """How long a terminating pod may continue to serve, and how the hook detects that the pod is idle."""

    seconds: int
    """The longest time that the hook waits, in seconds. With 0, there is no hook, and the engine is stopped
    immediately."""
    shell: bool = True
    """Whether the image has a shell, which the hook needs. Without a shell, the pod continues for ``FALLBACK_SECONDS``,
    or for ``seconds`` if that is shorter."""
    metrics: tuple[str, ...] = ()
    """Names of the engine's metrics that are zero while the engine has no request."""
    closes_idle: bool = False
    """Whether the engine closes a connection seconds after its last response, so that open connections usually have
    requests. If it does not and has no metrics, the hook ends after twelve checks despite open connections."""
    loopback: str = "127.0.0.1"
    """Address at which the hook queries the engine's metrics."""

    @property
    def grace_seconds(self) -> int:
        """The pod's termination grace period in seconds."""
        return (self.seconds if self.shell else min(self.seconds, FALLBACK_SECONDS)) + MARGIN_SECONDS

    def hook(self, port: int) -> Object:
        """Return the ``preStop`` handler of the container that listens on ``port``. An empty handler means that the
        container may stop immediately."""
        if not self.seconds:
            return {}
        if not self.shell:
            return {"sleep": {"seconds": min(self.seconds, FALLBACK_SECONDS)}}
        script = SCRIPT.replace("127.0.0.1", self.loopback)
        arguments = (str(port), str(self.seconds), "busy" if self.closes_idle else "unknown", *self.metrics)
        return {"exec": {"command": ["sh", "-c", script, "drain", *arguments]}}


def bounded(probes: Object) -> Object:
    """Return the probes of a container, by field name. A startup or liveness probe without a termination grace period
    gets ``FAILED_SECONDS``."""
    bound = {"terminationGracePeriodSeconds": FAILED_SECONDS}
    return {field: {**bound, **probe} if field in ENDED_BY and probe else probe for field, probe in probes.items()}
