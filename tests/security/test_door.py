"""Rows 1 to 5 of the defaults: where it listens, the token, every route without it, origins, limits, headers."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys

import httpx
import psutil
import pytest

from core.cli import main
from tests.security.conftest import ROOT, Board
from webui.guard import BODY_BYTES, HEADERS

OPEN = {"/api/health"}


def test_it_listens_on_loopback_only(board):
    listening = [
        one for one in psutil.Process(board.process.pid).net_connections("inet") if one.status == "LISTEN"
    ]
    assert {one.laddr.ip for one in listening} == {"127.0.0.1"} and len(listening) == 1


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_exposed_without_a_token_is_refused(host, tmp_path, capsys):
    assert main(["--home", str(tmp_path / "home"), "board", "--host", host, "--no-token"]) == 2
    assert "--no-token is only for this machine" in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


def test_a_port_in_use_is_one_sentence_with_a_free_one(tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["--home", str(tmp_path / "home"), "board", "--port", str(port)]) == 2
    said = capsys.readouterr().err.strip()
    assert len(said.splitlines()) == 1 and f"Port {port} on 127.0.0.1 is in use" in said and "--port" in said


def test_a_short_token_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FACTORY_TOKEN", "short")
    assert main(["--home", str(tmp_path / "home"), "board", "--port", "0"]) == 2
    assert "at least 16" in capsys.readouterr().err


def test_the_token_is_printed_once_and_kept_for_the_owner_alone(board):
    assert board.log.read_text().count(board.token) == 1
    kept = board.home / ".board-token"
    assert kept.read_text().strip() == board.token and stat.S_IMODE(kept.stat().st_mode) == 0o600
    holders = [
        path for path in board.home.rglob("*") if path.is_file() and board.token.encode() in path.read_bytes()
    ]
    assert holders == [kept]


def test_no_process_tells_the_token_by_its_command_line(board):
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        assert not any(board.token in word for word in words if "pytest" not in word)


def test_no_route_gives_out_the_token_file(board):
    for path in (
        "/ui/.board-token",
        "/ui/..%2f.board-token",
        "/api/data/.board-token",
        "/gradio_api/file=.board-token",
    ):
        assert board.client.get(path).status_code >= 400
    job = json.dumps({"model": "smollm2-135m", "stage": "sft", "data": str(board.home / ".board-token")})
    assert board.refused(job) == {"path_outside"}


def test_every_route_is_401_without_the_token(board, routes):
    ours = [
        (method.upper(), path)
        for path, one in board.client.get("/api/openapi.json").json()["paths"].items()
        for method in one
    ]
    every = sorted({*routes, *((method, path.replace("{", "").replace("}", "")) for method, path in ours)})
    assert len(ours) > 30 and len(every) > 150
    assert {"/config", "/gradio_api/queue/join", "/gradio_api/runs", "/api/runs/id/stream"} <= {
        path for _, path in every
    }
    with httpx.Client(base_url=board.url, timeout=30) as stranger:
        for method, path in every:
            if path in OPEN:
                continue
            answer = stranger.request(method, path)
            assert answer.status_code == 401, f"{method} {path}: {answer.status_code}"
            assert board.token not in answer.text


def test_health_alone_is_open_and_says_nothing_more(board):
    assert httpx.get(f"{board.url}/api/health").json() == {"ok": True}


def test_the_token_in_the_address_becomes_a_cookie_that_opens_the_page(board):
    with httpx.Client(base_url=board.url, timeout=30) as browser:
        swapped = browser.get("/", params={"token": board.token})
        assert (swapped.status_code, swapped.headers["location"]) == (303, "/")
        assert browser.get("/").status_code == 200 and browser.get("/api/runs").status_code == 200
        assert board.token not in str(browser.cookies)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Host: evil.example", 403),
        ("Host: 127.0.0.1.nip.example:{port}", 403),
        ("Host: 127.0.0.1:{port}\r\nHost: evil.example", 400),
        ("X: no host", 400),
        ("Host: 127.0.0.1:{port}\r\nOrigin: http://evil.example", 403),
        ("Host: 127.0.0.1:{port}\r\nOrigin: null", 403),
        ("Host: 127.0.0.1:{port}\r\nSec-Fetch-Site: cross-site", 403),
        ("Host: evil.example\r\nOrigin: http://evil.example", 403),
        ("Host: 127.0.0.1:{port}", 200),
    ],
)
@pytest.mark.parametrize("path", ["/api/runs", "/", "/config", "/gradio_api/startup-events"])
def test_foreign_hosts_and_origins_are_refused_with_the_right_token_too(board, path, headers, status):
    head = headers.format(port=board.port)
    with socket.create_connection(("127.0.0.1", board.port), timeout=30) as connection:
        connection.sendall(
            f"GET {path} HTTP/1.1\r\n{head}\r\nAuthorization: Bearer {board.token}\r\n".encode()
            + b"Connection: close\r\n\r\n"
        )
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.split(b" ", 2)[1] == str(status).encode()
    assert b"access-control-allow" not in answer.lower()


def test_a_large_body_is_413_by_header_and_by_chunks(board):
    assert board.client.post("/api/jobs/check", content=b"x" * (BODY_BYTES + 1)).status_code == 413
    chunks = (b"x" * 65536 for _ in range(BODY_BYTES // 65536 + 2))
    assert board.client.post("/gradio_api/queue/join", content=chunks).status_code == 413
    assert board.client.get("/api/health").status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/"), ("GET", "/config"), ("GET", "/nothing"), ("GET", "/api/nothing"), ("GET", "/api/runs/x"),
     ("GET", "/ui/css/base.css"),
     ("POST", "/api/jobs/check"), ("GET", "/gradio_api/file=/etc/passwd"), ("PUT", "/api/runs"), ("GET", "/theme.css"),
     ("GET", "/api/openapi.json"), ("POST", "/gradio_api/upload")],
)  # fmt: skip
def test_every_answer_has_the_security_headers(board, method, path):
    for client in (board.client, httpx.Client(base_url=board.url)):
        headers = client.request(method, path).headers
        for name, value in HEADERS:
            assert headers.get_list(name.decode()) == [value.decode()], f"{method} {path}"
        assert "server" not in headers and not [name for name in headers if name.startswith("access-control")]
    client.close()


def test_the_policy_keeps_every_request_on_this_host():
    policy = dict(HEADERS)[b"content-security-policy"].decode()
    sources = {word for part in policy.split("; ") for word in part.split()[1:]}
    assert sources == {"'self'", "'none'", "'unsafe-inline'", "'unsafe-eval'", "data:", "blob:"}
    for part in (
        "default-src 'self'",
        "connect-src 'self'",
        "object-src 'none'",
        "frame-ancestors 'none'",
        "base-uri 'self'",
    ):
        assert part in policy.split("; ")


def test_a_killed_board_starts_again_with_the_same_token(tmp_path):
    first = Board(tmp_path)
    first.process.kill()
    first.process.wait()
    first.client.close()
    program = (
        "import sys, pathlib as p; from webui.settings import token_of; print(token_of(p.Path(sys.argv[1])))"
    )
    again = subprocess.run(
        [sys.executable, "-c", program, str(first.home)],
        cwd=ROOT,
        env={**os.environ},
        capture_output=True,
        text=True,
    )
    assert again.stdout.strip() == first.token
