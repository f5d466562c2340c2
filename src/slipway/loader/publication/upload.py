"""The upload of a ``Content`` to a registry as a blob. Interrupted uploads are resumed, and existing blobs are never
sent again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol

from slipway.loader.download.stage import Work
from slipway.loader.download.transfer import Retrier
from slipway.loader.publication.contents import Content, Hashed, WrongError, promised_digest
from slipway.loader.transport.errors import LoadError, TransientError
from slipway.loader.transport.read_ahead import ReadAhead
from slipway.loader.transport.registry import DigestMismatchError, Progress, Registry, UploadGoneError
from slipway.loader.transport.selection import FaultError


class Notes(Protocol):
    """The state of a publication that survives this process."""

    def blob(self, content: Content) -> str:
        """Return the digest of a blob that was stored earlier with this content, or an empty string if none is
        known."""

    def upload(self, content: Content) -> str:
        """Return the location of an unfinished upload of this content, or an empty string if there is none."""

    def record_upload(self, content: Content, location: str) -> None:
        """Record the location of a new upload of this content."""

    def done(self, content: Content, digest: str) -> None:
        """Record that the registry now has this content as a blob."""


class Uploader:
    def __init__(self, registry: Registry, notes: Notes, work: Work) -> None:
        self._registry, self._notes, self._work = registry, notes, work

    def put(self, content: Content) -> str:
        """Ensure that the registry has a blob with this content, and return its digest. Raise LoadError or
        StoppedError."""
        digest = promised_digest(content) or self._notes.blob(content)
        if digest and self._has(digest, content.size):
            self._work.meter.reused(content.size)
        else:
            digest = self._upload(content)
        self._notes.done(content, digest)
        self._work.meter.file_done()
        return digest

    def missing(self, content: Content) -> bool:
        """Whether the registry has no blob with this content, so the content must be sent."""
        digest = promised_digest(content) or self._notes.blob(content)
        return not (digest and self._has(digest, content.size))

    def _has(self, digest: str, size: int) -> bool:
        return self._retrier().call(self._registry.host, lambda: self._registry.size(digest)) == size

    def _upload(self, content: Content) -> str:
        attempt, most = 0, self._work.policy.wrong
        while True:
            attempt += 1
            try:
                return self._attempt(content)
            except WrongError as error:
                if attempt >= most:
                    text = f"{error} did not match its checksum in attempt {attempt} of {most}"
                    why = "the file at the source is corrupt, or a proxy changes it"
                    raise FaultError("IntegrityCheckFailed", f"{text}: {why}") from error
            except UploadGoneError as error:
                if attempt >= most:
                    text = f"{self._registry.host} lost the upload of {content.name} in attempt {attempt} of {most}"
                    raise LoadError(f"{text}: check the registry's log and storage", transient=True) from error

    def _attempt(self, content: Content) -> str:
        """Send the content once, and return its digest. Raise WrongError if the bytes do not match the source's digest,
        or UploadGoneError if the registry lost the upload at its end."""
        hashed, retrier = Hashed(content), self._retrier()
        expected = promised_digest(content)
        upload = retrier.call(self._registry.host, lambda: self._start(content))
        self._work.meter.reused(upload.offset)
        if not expected:
            hashed.catch_up(upload.offset)
        try:
            while upload.offset < content.size:
                upload = self._send(content, hashed, upload, retrier)
        except WrongError:
            self._drop(upload.location, upload.offset)
            raise
        if not hashed.keeps_promise() or (expected and hashed.whole and hashed.digest != expected):
            self._drop(upload.location, content.size)
            raise WrongError(content.name)
        digest = expected or hashed.digest
        try:
            retrier.call(self._registry.host, lambda: self._commit(upload.location, digest, content.size))
        except UploadGoneError as error:
            self._work.meter.reused(-content.size)
            if isinstance(error, DigestMismatchError):
                raise WrongError(content.name) from error
            raise
        return digest

    def _drop(self, location: str, counted: int) -> None:
        """Cancel an upload of wrong bytes, and subtract the ``counted`` bytes from the progress."""
        with suppress(LoadError, TransientError, UploadGoneError):
            self._registry.cancel(location)
        self._work.meter.reused(-counted)

    def _start(self, content: Content) -> Progress:
        """Return the progress of an unfinished upload of this content that has some bytes, or start a new upload."""
        location = self._notes.upload(content)
        if location:
            with suppress(UploadGoneError, LoadError):
                progress = self._registry.progress(location)
                if 0 < progress.offset <= content.size:
                    return progress
                self._registry.cancel(location)
        location = self._registry.begin()
        self._notes.record_upload(content, location)
        return Progress(location, 0)

    def _send(self, content: Content, hashed: Hashed, upload: Progress, retrier: Retrier) -> Progress:
        """Send the remaining bytes in one request, and return the upload's new progress. If the request fails, pause,
        and return the progress that the registry reports, or that of a new upload."""
        meter, at = self._work.meter, upload.offset

        def counted(chunks: Iterator[bytes]) -> Iterator[bytes]:
            nonlocal at
            for chunk in chunks:
                at += len(chunk)
                meter.fetched(len(chunk))
                yield chunk

        ahead = ReadAhead(hashed.chunks(upload.offset))
        try:
            after = self._registry.send(upload, counted(iter(ahead)), content.size - upload.offset)
            retrier.progressed()
        except TransientError as error:
            ahead.stop()
            after = self._resume(content, upload, error, retrier)
        except WrongError:
            meter.reused(upload.offset - at)
            raise
        except UploadGoneError:
            ahead.stop()
            retrier.failed(content.name, TransientError(f"{self._registry.host} lost the upload"))
            after = retrier.call(self._registry.host, lambda: self._start(content))
        finally:
            ahead.stop()
        meter.reused(after.offset - at)
        return after

    def _resume(self, content: Content, upload: Progress, error: TransientError, retrier: Retrier) -> Progress:
        """Return an upload's progress as the registry reports it after a failed request. New bytes reset the retry
        limit. If the upload is lost, start a new one."""
        while True:
            retrier.failed(content.name, error)
            try:
                after = self._registry.progress(upload.location)
            except TransientError as fresh:
                error = fresh
                continue
            except UploadGoneError:
                return self._start(content)
            if after.offset > content.size:
                self._registry.cancel(upload.location)
                return self._start(content)
            if after.offset > upload.offset:
                retrier.progressed()
            return after

    def _commit(self, location: str, digest: str, size: int) -> None:
        """Turn the upload into a blob. Raise DigestMismatchError if the bytes do not match the digest, or another
        UploadGoneError if the registry lost the upload."""
        try:
            self._registry.commit(location, digest)
        except UploadGoneError:
            # The response to an earlier, successful request may have been lost.
            if self._registry.size(digest) != size:
                raise

    def _retrier(self) -> Retrier:
        return Retrier(self._work.policy, self._work.stop, self._work.meter)
