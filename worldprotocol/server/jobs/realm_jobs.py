"""The jobs of one realm: one of each kind runs at a time, and a bounded number of ended ones is kept.

Jobs are in the memory of the server's process: they end when it stops, and other servers of the realm do not know them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.operations.jobs import JobKind, JobRequest
from worldprotocol.server.jobs.job import Job
from worldprotocol.server.jobs.program import RealmProgram
from worldprotocol.server.problems import TooManyRequestsError

__all__ = ["RealmJobs", "Slots"]

MAX_RUNNING: Final = 4
"""Jobs of all realms that run at once."""

MAX_KEPT: Final = 20
MAX_KEPT_BYTES: Final = 32 * 1024 * 1024
"""Ended jobs of a realm that are kept, and bytes of their results; the oldest ones are forgotten first."""

RETRY_AFTER_S: Final = 5
_LOGGER = logging.getLogger("worldprotocol.server")


class Slots:
    """Number of jobs that run in the process of the server."""

    def __init__(self, most: int = MAX_RUNNING) -> None:
        self.most = most
        self.running = 0


class RealmJobs:
    """The jobs of one realm.

    Args:
        program: log and code of the realm.
        slots: the running jobs of all realms.
        now: returns ms since 1970.
    """

    def __init__(self, program: RealmProgram, slots: Slots, now: Callable[[], int]) -> None:
        self.program = program
        self._slots = slots
        self._now = now
        self._jobs: dict[str, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    @property
    def listed(self) -> list[Job]:
        """The jobs that are kept, newest first."""
        return list(self._jobs.values())[::-1]

    def newest(self, kind: JobKind) -> Job:
        """Return the newest job of a kind.

        Raises:
            RefusedError: ``NOT_FOUND``.
        """
        for job in self.listed:
            if job.request.kind == kind:
                return job
        raise RefusedError(ErrorCode.NOT_FOUND, f"No {kind} was started since this server began; POST one.")

    def job(self, job_id: str) -> Job:
        """Return a job.

        Raises:
            RefusedError: ``NOT_FOUND``.
        """
        job = self._jobs.get(job_id)
        if job is None:
            raise RefusedError(
                ErrorCode.NOT_FOUND,
                f"This server has no job {job_id[:80]!r}; jobs end with the server, and the newest {MAX_KEPT} are "
                "kept. `GET .../jobs` lists them.",
            )
        return job

    def start(self, job_id: str, request: JobRequest) -> Job:
        """Start a job; a repeated request, and one that equals the running job, is that job.

        Args:
            job_id: id of a new job.
            request: what is requested.

        Raises:
            RefusedError: ``IDEMPOTENCY_CONFLICT``, ``SERVER_STOPPING``, ``NO_CONFIG``.
            TooManyRequestsError: another job of the kind runs, or too many jobs run.
        """
        repeated = self._repeated(request)
        if repeated is not None:
            return repeated
        if self._is_stopping:
            raise RefusedError(ErrorCode.SERVER_STOPPING, "The server stops; start the job again later.")
        if request.kind != "verify":
            _ = self.program.composed
        for job in self._jobs.values():
            if job.is_running and job.request.kind == request.kind:
                if job.request.options == request.options:
                    return job
                raise TooManyRequestsError(
                    f"A {request.kind} runs in this realm already ({job.job_id}); start another one when it has ended, "
                    "or cancel it.",
                    RETRY_AFTER_S,
                )
        if self._slots.running >= self._slots.most:
            raise TooManyRequestsError(
                f"{self._slots.running} jobs run on this server already; start one when another has ended.",
                RETRY_AFTER_S,
            )
        job = self._jobs[job_id] = Job(job_id, request, self._now())
        self._slots.running += 1
        task = asyncio.ensure_future(self._run(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    def _repeated(self, request: JobRequest) -> Job | None:
        """Return the job that an earlier request of the actor with the same key started.

        Raises:
            RefusedError: ``IDEMPOTENCY_CONFLICT``.
        """
        if request.key is None:
            return None
        for job in self._jobs.values():
            if (job.request.by, job.request.key) == (request.by, request.key):
                if job.request != request:
                    raise RefusedError(
                        ErrorCode.IDEMPOTENCY_CONFLICT,
                        f"The Idempotency-Key {request.key} was used for another job; use a new one.",
                    )
                return job
        return None

    async def _run(self, job: Job) -> None:
        try:
            await job.run(self.program, self._now)
        except Exception as error:
            _LOGGER.error("Job %s failed", job.job_id, exc_info=error)
            failed = {"code": ErrorCode.SERVER_FAILED, "message": "The job failed; the server's log has the cause."}
            job.end("failed", self._now(), failed)
        finally:
            self._slots.running -= 1
            self._forget()

    def _forget(self) -> None:
        """Forget the oldest ended jobs beyond the limits."""
        ended = [job for job in self._jobs.values() if not job.is_running]
        kept = sum(job.result_bytes for job in ended)
        for place, job in enumerate(ended[:-1]):
            if len(ended) - place <= MAX_KEPT and kept <= MAX_KEPT_BYTES:
                return
            del self._jobs[job.job_id]
            kept -= job.result_bytes

    def cancel(self, job_id: str) -> Job:
        """Cancel a job; one that has ended stays as it is.

        Raises:
            RefusedError: ``NOT_FOUND``.
        """
        job = self.job(job_id)
        job.end("cancelled", self._now())
        return job

    def begin_stop(self) -> None:
        """End all jobs, because the server stops."""
        self._is_stopping = True
        error = {"code": ErrorCode.SERVER_STOPPING, "message": "The server stopped; start the job again later."}
        for job in self._jobs.values():
            job.end("failed", self._now(), error)

    async def join(self) -> None:
        """Wait until the processes of all jobs have ended."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))
