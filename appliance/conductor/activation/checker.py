"""Checking a candidate in a process of its own, so that no stream of the daemon waits for it.

Started for one question as `python -m conductor.activation.checker`: JSON on standard input, a
report on standard output. It inherits no environment and holds no keys. However it ends without a
report, nothing is known of the candidate, which is then refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import orjson
import structlog

from conductor.activation.question import Question
from conductor.activation.question import of_facts as question_of
from conductor.activation.report import Problem, Report, of_facts
from conductor.process.spawn import end, spawn

TIMEOUT_S = 120.0
_NICE = 10
_MAX_MEMORY_BYTES = 4 << 30

log = structlog.get_logger()


async def ask(question: Question, timeout_s: float = TIMEOUT_S) -> Report:
    """The report on a candidate. Never raises for what the candidate does to the checker."""
    # -P: no module from the working directory.
    argv = [sys.executable, "-P", "-m", "conductor.activation.checker"]
    root = Path(__file__).parents[2]
    environment = {"PYTHONPATH": str(root), "PATH": os.defpath, "LC_ALL": "C.UTF-8"}
    try:
        process = await spawn(*argv, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env=environment)
    except OSError:
        return _unknown(question)
    try:
        async with asyncio.timeout(timeout_s):
            answer, _ = await process.communicate(orjson.dumps(question.facts()))
        return of_facts(orjson.loads(answer))
    except (TimeoutError, OSError, orjson.JSONDecodeError, KeyError, TypeError):
        return _unknown(question)
    finally:
        if process.returncode is None:
            await end(process)


def main() -> None:
    """Answer the one question on standard input. Requests come first: this can wait."""
    from conductor.activation.check import check
    from conductor.logs import configure

    configure()  # to standard error: the output is for the report alone
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
    question = question_of(orjson.loads(sys.stdin.buffer.read()))
    sys.stdout.buffer.write(orjson.dumps(check(question).facts()))


def _unknown(question: Question) -> Report:
    log.error("policy_check_failed")
    message = "the candidate could not be checked: 'conductor policy lint' may tell why"
    sha256 = hashlib.sha256(question.candidate).hexdigest()
    return Report(sha256, problems=(Problem("check", "not-checked", message),))


if __name__ == "__main__":
    main()
