"""Errors in the format that clients of the Hub understand: a status, and headers from which the client selects its
exception."""

from __future__ import annotations

import re

from aiohttp import web


class HubError(Exception):
    """A rejected request: its HTTP status, and an error code and a message for the client."""

    def __init__(self, status: int, code: str, message: str, commit: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        """Value of the header ``X-Error-Code``; empty: the response has no such header."""
        self.commit = commit
        """The commit that lacks the requested path, so that a client may cache this fact; empty: the error has another
        cause than a missing path."""

    def response(self) -> web.Response:
        """Return the HTTP response in the format that the Hub's clients parse."""
        message = str(self)
        # The message may quote the request, but a header can only contain printable ASCII.
        headers = {"X-Error-Message": re.sub(r"[^ -~]", "?", message)}
        if self.code:
            headers["X-Error-Code"] = self.code
        if self.commit:
            headers["X-Repo-Commit"] = self.commit
        if self.status in (429, 503):
            headers["Retry-After"] = "1"
        return web.json_response({"error": message}, status=self.status, headers=headers)


def repository_not_found() -> HubError:
    """Return a 404 for a repository that does not exist, or that the hub does not serve."""
    return HubError(404, "RepoNotFound", "Repository not found")


def revision_not_found(revision: str) -> HubError:
    """Return a 404 for a revision that the repository does not have."""
    return HubError(404, "RevisionNotFound", f"Invalid rev id: {revision}")


def entry_not_found(path: str, commit: str) -> HubError:
    """Return a 404 for a path that the revision at ``commit`` does not have."""
    return HubError(404, "EntryNotFound", f"{path} does not exist in this revision", commit)


def gated(repository: str) -> HubError:
    """Return a 403 for a repository that requires a valid token."""
    return HubError(403, "GatedRepo", f"Access to model {repository} is restricted: a token of this hub is needed")


def bad_credentials() -> HubError:
    """Return a 401 for an invalid or missing token. The message is part of the protocol: clients use it to distinguish
    an invalid token from a missing repository."""
    return HubError(401, "", "Invalid credentials in Authorization header")


def bad_request(message: str) -> HubError:
    """Return a 400 for an invalid request. ``message`` explains the fault to the client."""
    return HubError(400, "", message)


def unavailable(message: str) -> HubError:
    """Return a 503 for a transient problem. Clients retry the request."""
    return HubError(503, "", message)


def too_many_requests() -> HubError:
    """Return a 429 for an address with too many concurrent requests. Clients retry the request."""
    return HubError(429, "", "Too many requests from this address at once")
