"""The limited child process that touches foreign bytes, and the parent's side of the pipe to it.

Every file is read, parsed, mapped and put through its chat template in a child with limits on memory, CPU time
and written bytes (the house's threat table, row 13). A parser that crashes, hangs or eats memory ends the child;
the parent gets one sentence. Frames on the pipe: four bytes of length, then JSON.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from data.errors import FactoryError, Finding, refuse
from data.limits import CPU_SECONDS, CPU_SECONDS_PER_GIB, MEMORY

ROOT = Path(__file__).resolve().parent.parent
MAX_FRAME = 2**30


def ask_child(
    request: Mapping[str, Any], input_bytes: int, wall_seconds: float | None = None
) -> Iterator[dict[str, Any]]:
    """Send a request to a fresh child and yield its frames; the last one has {"end": ...}.

    `input_bytes` sizes the CPU limit. Raises FactoryError for what the child refuses, and when it dies.
    Closing the iterator early ends the child.
    """
    cpu = int(CPU_SECONDS + CPU_SECONDS_PER_GIB * input_bytes / 2**30)
    environment = {
        key: os.environ[key] for key in ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "TZ") if key in os.environ
    }
    environment |= {
        "PYTHONUTF8": "1",
        "OMP_NUM_THREADS": "1",
        "ARROW_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }
    child = subprocess.Popen(
        [sys.executable, "-c", "from data.child import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        cwd=ROOT,
    )
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    timer = _alarm(child, wall_seconds)
    try:
        child.stdin.write(orjson.dumps({**request, "cpu": cpu}))
        child.stdin.close()
        ended = False
        while (frame := _read_frame(child.stdout)) is not None:
            if "error" in frame:
                raise FactoryError(
                    [Finding(**{**one, "params": one["params"] or {}}) for one in frame["error"]]
                )
            ended = "end" in frame
            yield frame
        if not ended:
            raise _died(child, request)
    except BrokenPipeError:
        raise _died(child, request) from None
    finally:
        if timer is not None:
            timer.cancel()
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()


def _alarm(child: subprocess.Popen[bytes], seconds: float | None) -> Any:
    if seconds is None:
        return None
    import threading

    timer = threading.Timer(seconds, child.send_signal, (signal.SIGXCPU,))
    timer.daemon = True
    timer.start()
    return timer


def _read_frame(stream: Any) -> dict[str, Any] | None:
    head = stream.read(4)
    if len(head) < 4:
        return None
    size = struct.unpack("<I", head)[0]
    body = stream.read(size)
    if len(body) < size:
        return None
    frame: dict[str, Any] = orjson.loads(body)
    return frame


def _died(child: subprocess.Popen[bytes], request: Mapping[str, Any]) -> FactoryError:
    code = child.wait()
    assert child.stderr is not None
    said = child.stderr.read()[-2000:].decode("utf-8", "replace").strip().splitlines()
    names = (
        ", ".join(Path(file).name for one in request.get("sources", []) for file in one["files"][:3])
        or "the template"
    )
    if code in (-signal.SIGXCPU, -signal.SIGALRM):
        return refuse(
            "data_takes_too_long", f"Reading {names} took too long and was stopped: split it into smaller files.",
            field="data.path", value=names,
        )  # fmt: skip
    last = said[-1][:300] if said else ""
    if (
        code > 0
    ):  # an exception that nothing foresaw: the file may be fine, and its last words say more than a guess
        return refuse(
            "data_parser_failed",
            f"Reading {names} failed with {last.rstrip('.') or f'exit code {code}'}, which should not happen: "
            "please report it, with the file or a part of it that shows it.",
            field="data.path",
            value=names,
            exit=code,
            said=last,
        )  # fmt: skip
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    return refuse(
        "data_parser_crashed",
        f"The parser of {names} ended with {how}: the file is damaged or made to break parsers; "
        "convert it or choose another.",
        field="data.path",
        value=names,
        exit=code,
        said=last,
    )


def main() -> None:
    """The child: read a request from stdin, answer with frames on stdout."""
    request = orjson.loads(sys.stdin.buffer.read())
    limit_process(request["cpu"])
    from data import work

    out = os.fdopen(os.dup(1), "wb", buffering=2**20)
    os.dup2(2, 1)

    def send(frame: Mapping[str, Any]) -> None:
        try:
            body = orjson.dumps(frame)
        except TypeError:  # half characters (lone surrogates) cannot be written as UTF-8
            body = orjson.dumps(work.mended(frame))
        out.write(struct.pack("<I", len(body)))
        out.write(body)

    try:
        for frame in work.answer(request):
            send(frame)
    except FactoryError as error:
        send({"error": [finding.to_json() for finding in error.findings]})
    except (MemoryError, RecursionError) as error:
        what = "memory" if isinstance(error, MemoryError) else "nesting depth"
        code = "data_needs_too_much_memory" if isinstance(error, MemoryError) else "data_too_deep"
        found = Finding(code, f"The file needs more {what} than the limit allows: split it, or write it as JSONL.",
                        "error", "data.path")  # fmt: skip
        send({"error": [found.to_json()]})
    except UnicodeError as error:
        words = f"The text is not in the encoding that was asked for ({error}): leave data.encoding empty to find it."
        send({"error": [Finding("wrong_encoding", words, "error", "data.encoding").to_json()]})
    out.flush()
    out.close()
    # No clean-up worth waiting for: everything was read-only.
    os._exit(0)


def limit_process(cpu_seconds: int) -> None:
    """Limits of this process: address space, CPU time, no written files, no core dump."""
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    for limit, value in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(limit)
        wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
        # CPU time: SIGXCPU, which names the reason, before SIGKILL.
        spare = 5 if limit == resource.RLIMIT_CPU and hard == resource.RLIM_INFINITY else 0
        resource.setrlimit(limit, (wanted, wanted + spare))
