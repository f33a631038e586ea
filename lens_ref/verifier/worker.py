"""The process that grades: reads requests from stdin, writes replies to stdout, one at a time.

Started by path, not with ``-m``, and never through ``lens_ref/__init__``: grading needs no torch.
A message is a 4-byte big-endian length and that many bytes of ASCII JSON. The process ends when
its stdin closes, so it does not outlive the process that started it.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import types
from pathlib import Path
from typing import IO

MAX_MESSAGE_BYTES = 1 << 20
_HEADER = struct.Struct(">I")


def write_message(stream: IO[bytes], message: dict) -> None:
    """Send one message. ASCII JSON carries lone surrogates and null bytes unharmed."""
    payload = json.dumps(message, ensure_ascii=True).encode("ascii")
    stream.write(_HEADER.pack(len(payload)) + payload)
    stream.flush()


def read_message(stream: IO[bytes]) -> dict | None:
    """Receive one message; None at the end of the stream, mid-message too.

    Raises ValueError for a message longer than `MAX_MESSAGE_BYTES`.
    """
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    (size,) = _HEADER.unpack(header)
    if size > MAX_MESSAGE_BYTES:
        raise ValueError(f"message of {size} bytes is longer than {MAX_MESSAGE_BYTES}")
    payload = stream.read(size)
    return json.loads(payload) if len(payload) == size else None


def _import_grading():
    """Import the grading modules as parts of a bare `lens_ref`, whose own imports are skipped."""
    here = Path(__file__).resolve().parent
    for name, folder in (("lens_ref", here.parent), ("lens_ref.verifier", here)):
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    import logging

    logging.disable(logging.CRITICAL)  # math-verify warns about every expression it gives up on
    from lens_ref.verifier import grading

    return grading


def _restrict(memory_mb: int) -> None:
    """Bound memory; forbid files, core dumps and new processes, where the system can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    limits = [
        (resource.RLIMIT_AS, memory_mb << 20),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
    ]
    for kind, wanted in limits:
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            wanted = min(wanted, hard)
        try:
            resource.setrlimit(kind, (wanted, hard))
        except (OSError, ValueError):  # macOS refuses RLIMIT_AS
            continue


def _arm_dead_man_switch(seconds: float) -> None:
    """Let the kernel end this process if one answer outlasts even the parent's deadline.

    Matters only where the parent was killed in mid-answer and nobody is left to enforce it.
    """
    import signal

    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _reply(grading, request: dict) -> dict:
    try:
        if request["task"] == "gold":
            return {"parses": grading.gold_parses(request["gold"])}
        reason, route = grading.grade_answer(
            request["gold"], request["answer"], request["shortcuts"]
        )
        return {"reason": reason, "route": route}
    except RecursionError:
        return {"reason": "unparsable", "route": "depth", "parses": False}
    except MemoryError:
        return {"reason": "error", "route": "memory", "parses": False, "retire": True}
    except Exception as problem:  # sympy raises errors of many kinds for what has no value
        return {"reason": "unparsable", "route": type(problem).__name__, "parses": False}


def _warm_up(grading) -> None:
    """Build the parser's most used tables, so that the first real answer is not the slowest."""
    grading.grade_answer(r"\frac{\sqrt{3}}{2}", r"\frac{3}{2\sqrt{3}}", shortcuts=False)


def main() -> None:
    requests = sys.stdin.buffer
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing printed can garble the replies
    memory_mb = int(sys.argv[1])
    try:
        grading = _import_grading()
    except ImportError as problem:
        write_message(replies, {"failed": str(problem)})
        return
    _warm_up(grading)
    _restrict(memory_mb)
    write_message(replies, {"ready": True})
    while (request := read_message(requests)) is not None:
        _arm_dead_man_switch(request["timeout"] + 2)
        reply = _reply(grading, request)
        _arm_dead_man_switch(0)
        write_message(replies, reply)


if __name__ == "__main__":
    main()
