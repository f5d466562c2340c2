"""HAProxy's rules for the web page. Pure.

The page's static files are public, because browsers load them without an API key. Only their exact paths are public.
All other paths below ``/ui/`` need a key if the gateway requires keys.
"""

from __future__ import annotations

from slipway.gateway import errors

FILES = ("", "page.css", "main.js", "api.js", "dom.js", "list.js", "model.js", "chat.js", "examples.js", "icon.svg")
"""Names of the files below ``/ui/``. The first is the page itself."""


def before_keys() -> str:
    """Return the rules that redirect ``/`` and ``/ui`` to the page, and allow the page's files without a key."""
    return f"""\
    acl page path_beg /ui/
    acl page_file path {" ".join(f"/ui/{name}" for name in FILES)}
    http-request redirect location ui/ code 302 if {{ path / /ui }} {{ method GET HEAD }}
    http-request {errors.return_rule(errors.WRONG_METHOD)} if page !{{ method GET HEAD }}
    http-request allow if page_file"""


def after_keys() -> str:
    """Return the rule that allows the page's API to clients whose key has been checked."""
    return "    http-request allow if page"
