"""Errors as the hub's clients understand them: a status, and headers that select the client's exception."""

from __future__ import annotations

import re

from aiohttp import web


class HubError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, code: str, message: str, commit: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        """Value of ``X-Error-Code``; empty where the public hub sends none."""
        self.commit = commit
        """With it a client may remember that this commit has no such file."""

    def response(self) -> web.Response:
        """The HTTP response, in the shape that the hub's clients parse."""
        message = str(self)
        # It may quote the request, and a header holds printable ASCII only.
        headers = {"X-Error-Message": re.sub(r"[^ -~]", "?", message)}
        if self.code:
            headers["X-Error-Code"] = self.code
        if self.commit:
            headers["X-Repo-Commit"] = self.commit
        if self.status in (429, 503):
            headers["Retry-After"] = "1"
        return web.json_response({"error": message}, status=self.status, headers=headers)


def repository_not_found() -> HubError:
    """404: no such repository, or none that the hub shows."""
    return HubError(404, "RepoNotFound", "Repository not found")


def revision_not_found(revision: str) -> HubError:
    """404: the repository has no such revision."""
    return HubError(404, "RevisionNotFound", f"Invalid rev id: {revision}")


def entry_not_found(path: str, commit: str) -> HubError:
    """404: the revision at ``commit`` has no such path."""
    return HubError(404, "EntryNotFound", f"{path} does not exist in this revision", commit)


def gated(repository: str) -> HubError:
    """403: the repository is for known tokens only."""
    return HubError(403, "GatedRepo", f"Access to model {repository} is restricted: a token of this hub is needed")


def bad_credentials() -> HubError:
    """The message is part of the protocol: clients tell a wrong token from a missing repository by it."""
    return HubError(401, "", "Invalid credentials in Authorization header")


def bad_request(message: str) -> HubError:
    """400: the request makes no sense, as the message says."""
    return HubError(400, "", message)


def unavailable(message: str) -> HubError:
    """Something that passes; clients try again."""
    return HubError(503, "", message)


def too_many_requests() -> HubError:
    """Clients try again."""
    return HubError(429, "", "Too many requests from this address at once")
