"""Who may use which device, and who is next: one folder of kernel locks for all users of the machine.

A slot is a GPU (or the CPU where there is none), held by locking its file. A waiting run has a ticket: a locked file
whose name holds its place. Whoever reads or changes slots or tickets holds `queue.lock` for that moment. A waiter
sleeps until one of the processes it waits for ends; nothing polls, and no daemon hands out places.
Part of a waiting supervisor, so it imports nothing big, paths are plain text, and its values are plain classes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time

from core.runs.identity import process_start, user_name
from core.runs.locks import locked, open_lock, try_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from core.runs.locks import StrPath

FIRST = 10**9
"""Order of the first ticket; numbers below are for runs moved to the front."""


class Wish:
    """The slots a run can use, and how many of them it needs at once; none for one that computes elsewhere."""

    def __init__(self, slots: tuple[str, ...], count: int = 1) -> None:
        self.slots, self.count = slots, count


class Ticket:
    """A run's place in the queue, as its file name says."""

    def __init__(self, path: str, order: int, wish: Wish, key: str) -> None:
        self.path, self.order, self.wish, self.key = path, order, wish, key

    def holder(self) -> dict[str, Any]:
        """Whose ticket it is: pid and start of the supervisor, run folder, user."""
        return _read_holder(self.path)


class Grant:
    """Slots that were taken: their names with the descriptors that hold them, and the wall clock of the moment."""

    def __init__(self, slots: dict[str, int], at: float) -> None:
        self.slots, self.at = slots, at


class Wait:
    """Nothing to take yet. Look again when one of `holders` has ended; `ahead` live tickets are in front."""

    def __init__(self, holders: list[dict[str, Any]], ahead: int) -> None:
        self.holders, self.ahead = holders, ahead


def slots_folder() -> str:
    """The folder of this machine's slots: FACTORY_SLOTS, else one that all users share."""
    if chosen := os.environ.get("FACTORY_SLOTS"):
        return os.path.abspath(chosen)
    shared = "/var/lock"
    usable = os.path.isdir(shared) and os.stat(shared).st_mode & 0o1002 == 0o1002
    return f"{shared if usable else '/tmp'}/factory"


def slot_names() -> list[str]:
    """The machine's slots that this user means to use: GPUs (CUDA_VISIBLE_DEVICES narrows them), else the CPU."""
    gpus = sorted(_gpu_numbers())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if gpus and visible is not None:
        gpus = [int(word) for word in visible.split(",") if word.strip().isdigit() and int(word) in gpus]
    if gpus:
        return [f"gpu{number}" for number in gpus]
    return [f"cpu{number}" for number in range(int(os.environ.get("FACTORY_CPU_SLOTS", "1")))]


def wish_for(devices: Sequence[int] | int | None) -> Wish:
    """What `hardware.devices` asks for: any single slot, any so many, or those of these numbers.

    A CPU is one slot however many processes share it. Raises FactoryError for a device that is not there.
    """
    names = slot_names()
    if not devices:
        return Wish(tuple(names))
    kind = re.sub(r"\d+$", "", names[0])
    if isinstance(devices, int):
        count = devices if kind == "gpu" else 1
        if count > len(names):
            raise _missing(f"asks for {count} devices", names, devices)
        return Wish(tuple(names), count)
    wanted = tuple(dict.fromkeys(f"{kind}{number}" for number in devices))
    if missing := [name for name in wanted if name not in names]:
        raise _missing(f"names {', '.join(missing)}", names, list(devices))
    return Wish(wanted, len(wanted))


def _missing(asked: str, names: list[str], value: Any) -> Exception:
    from data.errors import refuse

    offered = ", ".join(names)
    text = (
        f"hardware.devices {asked}, but this machine offers {offered}: choose among these or leave it empty."
    )
    return refuse("device_missing", text, field="hardware.devices", value=value)


class Queue:
    """The slots and tickets of one folder."""

    def __init__(self, folder: StrPath | None = None) -> None:
        self.folder = os.fspath(folder or slots_folder())
        self.tickets = f"{self.folder}/tickets"

    def enter(self, wish: Wish, run: StrPath, key: str, spawn: Callable[[int], int]) -> None:
        """Join the end of the queue. `spawn` gets the locked ticket's descriptor and returns the pid that waits.

        Raises FactoryError when the folder cannot be used, and whatever `spawn` raises; then no ticket is left.
        """
        self._prepare()
        with self._locked():
            self._sweep()
            order = max((ticket.order for ticket in self._all()), default=FIRST - 1) + 1
            path = f"{self.tickets}/{_file_name(max(order, FIRST), wish, key)}"
            descriptor = open_lock(path)
            try:
                try_lock(descriptor)
                _write_holder(descriptor, spawn(descriptor), run)
            except BaseException:
                os.unlink(path)
                raise
            finally:
                os.close(descriptor)

    def try_take(self, key: str, run: StrPath) -> Grant | Wait:
        """Take what the ticket `key` wishes for if it is free and nobody in front could use it; else whom to wait for.

        Slots that a run in front needs stay reserved for it, so a run that wants several is never starved.
        Raises FileNotFoundError when there is no such ticket.
        """
        with self._locked():
            line = self._all()
            mine = next((ticket for ticket in line if ticket.key == key), None)
            if mine is None:
                raise FileNotFoundError(f"ticket {key} is gone from {self.tickets}")
            if not mine.wish.slots:  # it computes elsewhere and waits for nobody here
                os.unlink(mine.path)
                return Grant({}, round(time.time(), 6))
            front = [ticket for ticket in line if ticket.order < mine.order]
            free = self._lock_free(dict.fromkeys(name for one in (mine, *front) for name in one.wish.slots))
            chosen: list[str] = []
            try:
                left, blockers = _reserve(front, list(free))
                chosen = _choose(mine.wish, left)
                for name in chosen:
                    _write_holder(free[name], os.getpid(), run)
            finally:
                for name in set(free) - set(chosen):
                    os.close(free[name])
            if chosen:
                os.unlink(mine.path)
                return Grant({name: free[name] for name in chosen}, round(time.time(), 6))
            busy = [name for name in mine.wish.slots if name not in free]
            holders = [_read_holder(self._slot(name)) for name in busy] + [one.holder() for one in blockers]
            return Wait(holders, ahead=len(front))

    def leave(self, key: str) -> None:
        """Give up a place in the queue. Idempotent."""
        with self._locked():
            for ticket in self._all():
                if ticket.key == key:
                    os.unlink(ticket.path)

    def to_front(self, key: str) -> bool:
        """Move a waiting run before all others; False when it does not wait. Raises PermissionError."""
        with self._locked():
            line = self._all()
            mine = next((ticket for ticket in line if ticket.key == key), None)
            if mine is None:
                return False
            if mine is not line[0]:
                first = _file_name(line[0].order - 1, mine.wish, key)
                os.rename(mine.path, f"{self.tickets}/{first}")
            return True

    def line(self) -> list[Ticket]:
        """The live tickets in order; dead ones are swept away."""
        if not os.path.isdir(self.tickets):
            return []
        with self._locked():
            self._sweep()
            return self._all()

    def holders(self) -> dict[str, dict[str, Any]]:
        """Slots in use, with whose they are."""
        if not os.path.isdir(self.folder):
            return {}
        found = {}
        with self._locked():
            for file in sorted(os.listdir(self.folder)):
                name, kind = os.path.splitext(file)
                if kind == ".slot" and _is_locked(self._slot(name)):
                    found[name] = _read_holder(self._slot(name))
        return found

    def _prepare(self) -> None:
        try:
            for folder in (self.folder, self.tickets):
                os.makedirs(folder, exist_ok=True)
                if os.stat(folder).st_uid == os.getuid():
                    os.chmod(folder, 0o1777)  # every user of the machine waits in the same line
        except OSError as error:
            from data.errors import refuse

            text = (
                f"The folder of device locks {self.folder} cannot be used ({error.strerror}): "
                "ask its owner to make it writable for all, or set FACTORY_SLOTS to another folder."
            )
            raise refuse("slots_unusable", text, value=self.folder) from error

    def _locked(self) -> contextlib.AbstractContextManager[int]:
        return locked(f"{self.folder}/queue.lock", 0o666)

    def _slot(self, name: str) -> str:
        return f"{self.folder}/{name}.slot"

    def _all(self) -> list[Ticket]:
        found = [ticket for name in os.listdir(self.tickets) if (ticket := _parse(self.tickets, name))]
        return sorted(found, key=lambda ticket: ticket.order)

    def _sweep(self) -> None:
        for ticket in self._all():
            if not _is_locked(ticket.path):
                with contextlib.suppress(PermissionError, FileNotFoundError):  # another user's is passed over
                    os.unlink(ticket.path)

    def _lock_free(self, names: Iterable[str]) -> dict[str, int]:
        free = {}
        for name in names:
            descriptor = open_lock(self._slot(name), 0o666)
            if try_lock(descriptor):
                free[name] = descriptor
            else:
                os.close(descriptor)
        return free


def new_key() -> str:
    """A name for a ticket that no other ticket has."""
    return os.urandom(8).hex()


def _reserve(front: list[Ticket], free: list[str]) -> tuple[list[str], list[Ticket]]:
    """What is left when the runs in front have taken theirs, and the tickets that made a difference."""
    left, blockers = free, []
    for ticket in front:
        usable = [name for name in ticket.wish.slots if name in left]
        claimed = usable[: ticket.wish.count]
        if claimed and _is_locked(ticket.path):
            left = [name for name in left if name not in claimed]
            blockers.append(ticket)
    return left, blockers


def _choose(wish: Wish, free: list[str]) -> list[str]:
    usable = [name for name in wish.slots if name in free]
    if len(usable) < wish.count:
        return []
    if len(usable) > wish.count and usable[0].startswith("gpu"):
        from core.runs.gpus import foreign_processes

        crowded = foreign_processes()
        usable.sort(key=lambda name: len(crowded.get(name, [])))
    return usable[: wish.count]


def _gpu_numbers() -> list[int]:
    try:
        names = os.listdir("/dev")
    except OSError:
        return []
    return [int(match[1]) for name in names if (match := re.fullmatch(r"nvidia(\d+)", name))]


def _file_name(order: int, wish: Wish, key: str) -> str:
    return f"{order:012d}~{wish.count}~{','.join(wish.slots)}~{key}"


def _parse(folder: str, name: str) -> Ticket | None:
    words = name.split("~")
    if len(words) != 4 or not (words[0].isdigit() and words[1].isdigit()):
        return None
    wish = Wish(tuple(filter(None, words[2].split(","))), int(words[1]))
    return Ticket(f"{folder}/{name}", int(words[0]), wish, words[3])


def _is_locked(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)


def _write_holder(descriptor: int, pid: int, run: StrPath) -> None:
    holder = {
        "pid": pid,
        "start": process_start(pid),
        "run": str(run),
        "user": user_name(),
        "since": round(time.time(), 3),
    }
    with contextlib.suppress(OSError):  # another user's file: the lock counts, the note is for readers
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)


def _read_holder(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            holder = json.loads(file.read())
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) else {}
