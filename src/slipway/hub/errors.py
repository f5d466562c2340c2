"""Errors in the form that the Hub's clients understand: a status, and headers that select the client's exception."""

from __future__ import annotations

import re

from aiohttp import web


class HubError(Exception):
    """Ends a request with an error response."""

    def __init__(self, status: int, code: str, message: str, commit: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        """Value of ``X-Error-Code``; empty if the public Hub sends none."""
        self.commit = commit
        """The commit; with it a client may cache that this commit has no such file."""

    def response(self) -> web.Response:
        """Returns the HTTP response in the format that the Hub's clients parse."""
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
    """Returns a 404: the repository does not exist, or the hub does not serve it."""
    return HubError(404, "RepoNotFound", "Repository not found")


def revision_not_found(revision: str) -> HubError:
    """Returns a 404: the repository has no such revision."""
    return HubError(404, "RevisionNotFound", f"Invalid rev id: {revision}")


def entry_not_found(path: str, commit: str) -> HubError:
    """Returns a 404: the revision at ``commit`` has no such path."""
    return HubError(404, "EntryNotFound", f"{path} does not exist in this revision", commit)


def gated(repository: str) -> HubError:
    """Returns a 403: the repository requires a known token."""
    return HubError(403, "GatedRepo", f"Access to model {repository} is restricted: a token of this hub is needed")


def bad_credentials() -> HubError:
    """Returns a 401. Its message is part of the protocol: clients use it to distinguish an invalid token from a missing
    repository."""
    return HubError(401, "", "Invalid credentials in Authorization header")


def bad_request(message: str) -> HubError:
    """Returns a 400: the request is invalid, as the message explains."""
    return HubError(400, "", message)


def unavailable(message: str) -> HubError:
    """Returns a 503 for a transient problem; clients retry."""
    return HubError(503, "", message)


def too_many_requests() -> HubError:
    """Returns a 429; clients retry."""
    return HubError(429, "", "Too many requests from this address at once")
