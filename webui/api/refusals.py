"""Refusals as HTTP: one form for every error, its status by its code, the words those of FactoryError."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from data.errors import FactoryError, Finding
from webui.api.answers import ErrorAnswer

NOT_FOUND = frozenset(
    "export_not_found run_not_found speaker_not_found speaker_unknown checkpoint_not_found "
    "file_not_found data_file_not_found model_row_not_found trash_not_found recipe_not_found".split()
)
CONFLICT = frozenset(
    "export_over export_active draft_taken "
    "run_active run_not_running run_not_queued run_succeeded run_has_orphans run_ambiguous job_changed data_changed "
    "data_missing file_exists model_in_use data_in_use restore_in_the_way".split()
)
FORBIDDEN = frozenset("path_outside not_your_run model_not_deletable".split())
TOO_LARGE = frozenset("upload_too_large quota_exceeded job_too_large disk_full".split())

ANSWERS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorAnswer, "description": "The request itself is broken."},
    401: {"model": ErrorAnswer, "description": "The token is missing or wrong."},
    403: {"model": ErrorAnswer, "description": "Not from here, or not this file."},
    404: {"model": ErrorAnswer, "description": "There is no such thing."},
    409: {"model": ErrorAnswer, "description": "Not in the state it is in."},
    413: {"model": ErrorAnswer, "description": "Too large, or no room."},
    422: {"model": ErrorAnswer, "description": "Understood, and refused."},
}
"""The refusals every route may answer with, for the OpenAPI."""


def status_of(code: str) -> int:
    """The HTTP status of a refusal; 422 for what has none of its own."""
    for codes, status in ((NOT_FOUND, 404), (CONFLICT, 409), (FORBIDDEN, 403), (TOO_LARGE, 413)):
        if code in codes:
            return status
    return 422


def refused(findings: Sequence[Finding], status: int | None = None) -> JSONResponse:
    """The answer for a refusal; the first error speaks for all, the others stand beside it."""
    first = next((one for one in findings if one.level == "error"), findings[0])
    plain = first.to_json()
    error = {name: plain[name] for name in ("code", "message", "field", "value")}
    error |= {"todo": plain["fix"], "findings": [one.to_json() for one in findings]}
    return JSONResponse({"error": _writable(error)}, status or status_of(first.code))


def simple(status: int, code: str, message: str) -> JSONResponse:
    """A refusal without findings of its own."""
    return refused([Finding(code, message)], status)


def install(app: FastAPI) -> None:
    """Answer every kind of failure in this form; what is our own fault goes to the terminal, not to the client."""

    @app.exception_handler(FactoryError)
    async def _refusal(request: Request, error: FactoryError) -> JSONResponse:
        return refused(error.findings)

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        findings = [_finding(one) for one in error.errors()]
        broken = any(one["type"] == "json_invalid" for one in error.errors())
        return refused(findings, 400 if broken else 422)

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        words = {
            404: f"There is nothing at {request.url.path[:200]}.",
            405: "This address takes another method.",
        }
        text = words.get(error.status_code, str(error.detail))
        answer = simple(
            error.status_code,
            {404: "nothing_here", 405: "wrong_method"}.get(error.status_code, "bad_request"),
            text,
        )
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(Exception)
    async def _fault(request: Request, error: Exception) -> JSONResponse:
        traceback.print_exception(error, file=sys.stderr)
        text = f"This is a fault of Factory ({type(error).__name__}); the terminal of the board has its traceback."
        return simple(500, "fault", text)


def _finding(detail: Any) -> Finding:
    if detail["type"] == "json_invalid":
        why = str(detail.get("ctx", {}).get("error", "it is broken"))
        return Finding("bad_request", f"The body is not JSON: {why[:1].lower()}{why[1:]}.")
    where = [str(part) for part in detail["loc"] if part not in ("body", "query", "path")]
    field = ".".join(where) or None
    if detail["type"] == "string_pattern_mismatch":
        given = str(detail["input"])[:80]
        text = f"{field} {given!r} cannot be one; take it as the lists of the board have it."
        return Finding("bad_request", text, field=field, value=given)
    words = str(detail["msg"]).removeprefix("Value error, ").rstrip(".")
    return Finding("bad_request", f"{field or 'the request'}: {words[:1].lower()}{words[1:]}.", field=field)


def _writable(value: Any) -> Any:
    """The value as JSON can carry it: no NaN, no half characters, no objects of ours."""
    import json

    text = json.dumps(value, ensure_ascii=True, default=str, allow_nan=True)
    return json.loads(text, parse_constant=lambda name: None)
