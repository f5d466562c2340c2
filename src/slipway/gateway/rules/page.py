"""HAProxy's rules for the web page. Pure.

The page's static files are public, because browsers load them without a key. Only their exact paths are. Every other
path below ``/ui/`` needs a key if the gateway has keys.
"""

from __future__ import annotations

from slipway.gateway import errors

FILES = ("", "page.css", "main.js", "api.js", "dom.js", "list.js", "model.js", "chat.js", "examples.js", "icon.svg")
"""Names of the files below ``/ui/``. The first is the page itself."""


def before_keys() -> str:
    """Returns the rules that redirect to the page and allow its files."""
    return f"""\
    acl page path_beg /ui/
    acl page_file path {" ".join(f"/ui/{name}" for name in FILES)}
    http-request redirect location ui/ code 302 if {{ path / /ui }} {{ method GET HEAD }}
    http-request {errors.return_rule(errors.WRONG_METHOD)} if page !{{ method GET HEAD }}
    http-request allow if page_file"""


def after_keys() -> str:
    """Returns the rule that allows the page's API."""
    return "    http-request allow if page"
