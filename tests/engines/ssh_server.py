"""An ssh server of one's own on the loopback: its own keys, port and settings; nothing of the system's is used."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

INSTALL = "apt-get install --no-install-recommends openssh-server openssh-client"
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def missing() -> list[str]:
    """The programs that are not on this machine."""
    return [name for name in ("sshd", "ssh", "ssh-keygen") if shutil.which(name, path=PATH) is None]


@contextlib.contextmanager
def ssh_server(folder: Path) -> Iterator[tuple[int, Path]]:
    """A server, and a folder with an `ssh` that knows its key; yields the port and that folder."""
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    keys = folder / "keys"
    keys.write_text((folder / "user.pub").read_text())
    keys.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {keys}\nUsePAM no\n"
        f"PidFile none\nPasswordAuthentication no\nStrictModes no\nAcceptEnv FACTORY_* OMP_NUM_THREADS\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)  # where it parks its unprivileged half
    (folder / "ssh_config").write_text(
        f"Host 127.0.0.1\n  IdentityFile {folder}/user\n  UserKnownHostsFile {folder}/known\n"
        "  StrictHostKeyChecking no\n  SendEnv OMP_NUM_THREADS\n  SetEnv FACTORY_SLOTS="
        + str(folder / "slots")
        + "\n"
    )
    tools = folder / "bin"
    tools.mkdir()
    (tools / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
    (tools / "ssh").chmod(0o755)
    with (folder / "sshd.log").open("wb") as log:
        words = [shutil.which("sshd", path=PATH) or "sshd", "-D", "-e", "-f", str(folder / "sshd_config")]
        server = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        yield port, tools
    finally:
        server.terminate()
        server.wait(10)
