"""HAProxy's rules for the page. Pure.

The page's files are open, as a browser asks for them without a key; they hold nothing but the page itself. Only their
exact paths are: whatever else lies below ``/ui/`` needs a key where there are keys.
"""

from __future__ import annotations

from slipway.gateway import errors

FILES = ("", "page.css", "main.js", "api.js", "dom.js", "list.js", "model.js", "chat.js", "examples.js", "icon.svg")
"""Below ``/ui/``. The first one is the page itself."""


def before_keys() -> str:
    """Leads to the page, and lets its files through."""
    return f"""\
    acl page path_beg /ui/
    acl page_file path {" ".join(f"/ui/{name}" for name in FILES)}
    http-request redirect location ui/ code 302 if {{ path / /ui }} {{ method GET HEAD }}
    http-request {errors.return_rule(errors.WRONG_METHOD)} if page !{{ method GET HEAD }}
    http-request allow if page_file"""


def after_keys() -> str:
    """Lets what the page asks for through."""
    return "    http-request allow if page"
