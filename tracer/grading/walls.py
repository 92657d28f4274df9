"""The walls around a handed-in notebook, on Linux: what it may read and write, and which system calls it has.

Two ways to wall off files, the first that the system allows: a file system of its own in new namespaces (user, mount,
PID, network, IPC), or Landlock. On both a seccomp filter lets no process start, no socket open, no signal reach another
process; limits bound memory, CPU time and file sizes; capabilities are dropped. `tried` tries them out.

It uses the standard library alone, by system calls (kernel documentation: user_namespaces(7), landlock(7), seccomp(2)).
"""

import ctypes
import errno
import os
import platform
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.platform != "win32":
    import resource

__all__ = ["WAYS", "Room", "WallError", "enter", "prepare", "tried"]

WAYS = ("namespaces", "landlock")
SCRATCH = "/scratch"
MEBI = 1 << 20


class WallError(OSError):
    """A wall could not be put up; nothing has run."""


@dataclass(frozen=True)
class Room:
    """What a closed process has: paths that it may read, paths below them that it may not, a folder, limits."""

    readable: tuple[str, ...]
    hidden: tuple[str, ...]
    scratch: str  # an empty folder of this notebook's own
    memory: int = 2048  # MiB beyond what is in use when the walls go up
    seconds: int = 120  # of CPU time
    disk: int = 64  # MiB, of the scratch folder and of one file


# ------------------------------------------------------------------ system calls


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _checked(what: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise WallError(number, f"{what}: {os.strerror(number)}")
    return result


def _syscall(what: str, numbers: dict[str, int], *args: Any) -> int:
    number = numbers.get(platform.machine())
    if number is None:
        raise WallError(errno.ENOSYS, f"{what}: the processor {platform.machine()} is not known here")
    plain = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return _checked(what, int(_libc().syscall(ctypes.c_long(number), *plain)))


def _prctl(what: str, *args: int) -> int:
    padded = [ctypes.c_ulong(arg) for arg in (*args, 0, 0, 0, 0)[:5]]
    return _checked(what, int(_libc().prctl(*padded)))


# ------------------------------------------------------------------ way 1: namespaces and a file system of its own

_NEW = {"user": 0x10000000, "mount": 0x00020000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x08000000}
_MS = {"rdonly": 1, "nosuid": 2, "nodev": 4, "remount": 32, "bind": 4096, "rec": 16384, "private": 1 << 18}
_MOUNT_SETATTR = {"x86_64": 442, "aarch64": 442}
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_DETACH = 2


def _unshare() -> None:
    """Enter new namespaces; the next child is process 1 of the new PID namespace."""
    uid, gid = os.geteuid(), os.getegid()
    _checked("unshare", int(_libc().unshare(sum(_NEW.values()))))
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"1000 {uid} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"1000 {gid} 1", encoding="ascii")


def _mount(source: str, target: str, kind: str, *flags: str, data: str = "") -> None:
    bits = sum(_MS[flag] for flag in flags)
    texts = [ctypes.c_char_p(os.fsencode(text)) for text in (source, target, kind)]
    result = _libc().mount(*texts, ctypes.c_ulong(bits), ctypes.c_char_p(data.encode()))
    _checked(f"mount {target}", int(result))


def _bind(source: str, target: str, *, lock: bool = True) -> None:
    """Show one file or folder at another place; with `lock` nothing in it can be written."""
    here = Path(target)
    if os.path.isdir(source):
        here.mkdir(parents=True, exist_ok=True)
    else:
        here.parent.mkdir(parents=True, exist_ok=True)
        here.touch()
    _mount(source, target, "", "bind", "rec")
    if lock:
        wanted = struct.pack("QQQQ", 1 | 2, 0, 0, 0)  # MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID
        path = ctypes.c_char_p(os.fsencode(target))
        buffer = ctypes.create_string_buffer(wanted)
        _syscall(f"mount_setattr {target}", _MOUNT_SETATTR, -100, path, 0x8000, buffer, len(wanted))  # recursive


def _own_files(room: Room) -> None:
    """Make a file system that holds what may be read, and a small scratch folder, and nothing else."""
    _mount("none", "/", "", "rec", "private")
    root = room.scratch
    _mount("tmpfs", root, "tmpfs", "nosuid", "nodev", data="size=4m,mode=755")
    for path in _outermost(room.readable):
        _bind(path, root + path)
    for path in room.hidden:
        if os.path.isdir(root + path):
            _mount("tmpfs", root + path, "tmpfs", "rdonly", data="size=4k,mode=0")
    for path in ("/dev/null", "/dev/zero", "/dev/urandom"):
        _bind(path, root + path, lock=False)
    os.mkdir(root + SCRATCH)
    _mount("tmpfs", root + SCRATCH, "tmpfs", "nosuid", "nodev", data=f"size={room.disk}m,nr_inodes=4096,mode=700")
    os.chdir(root)
    here = ctypes.c_char_p(b".")
    _syscall("pivot_root", _PIVOT_ROOT, here, here)
    _checked("umount", int(_libc().umount2(here, _DETACH)))
    _mount("none", "/", "", "remount", "bind", "rdonly", "nosuid", "nodev")
    os.chdir(SCRATCH)


def _outermost(paths: tuple[str, ...]) -> list[str]:
    """Return the existing paths that lie in no other of them, links resolved, and the links' own places."""
    kept: list[str] = []
    for path in sorted({*paths, *(os.path.realpath(path) for path in paths)}):
        if os.path.exists(path) and not any(path == one or path.startswith(one + os.sep) for one in kept):
            kept.append(path)
    return kept


# ------------------------------------------------------------------ way 2: Landlock

_LANDLOCK = {name: {"x86_64": 444 + i, "aarch64": 444 + i} for i, name in enumerate(("create", "add", "restrict"))}
_READ = (1 << 2) | (1 << 3)
_WRITE = (1 << 1) | (1 << 4) | (1 << 5) | (1 << 7) | (1 << 8)  # write, remove folder and file, make folder and file
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}  # by version of Landlock
_TRUNCATE = 1 << 14


def _landlock_version() -> int:
    return _syscall("landlock", _LANDLOCK["create"], None, 0, 1)


def _landlock(room: Room) -> None:
    """Let files be opened only in the readable paths and in the scratch folder."""
    version = _landlock_version()
    rights = next(_RIGHTS[one] for one in sorted(_RIGHTS, reverse=True) if one <= version)
    fields = [rights, 3 if version >= 4 else 0, 3 if version >= 6 else 0]  # files; TCP; abstract sockets and signals
    attributes = struct.pack("QQQ", *fields)[: 8 if version < 4 else 16 if version < 6 else 24]
    buffer = ctypes.create_string_buffer(attributes)
    rules = _syscall("landlock", _LANDLOCK["create"], buffer, len(attributes), 0)
    for path in _except(room.readable, room.hidden):
        _allow(rules, path, _READ & rights)
    _allow(rules, room.scratch, (_READ | _WRITE | _TRUNCATE) & rights)
    _allow(rules, "/dev/null", (_READ | (1 << 1) | _TRUNCATE) & rights)
    for path in ("/dev/zero", "/dev/urandom"):
        _allow(rules, path, _READ & rights)
    _syscall("landlock", _LANDLOCK["restrict"], rules, 0)
    os.close(rules)
    os.chdir(room.scratch)


def _allow(rules: int, path: str, rights: int) -> None:
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    if not os.path.isdir(path):
        rights &= ~((1 << 3) | (1 << 4) | (1 << 5) | (1 << 7) | (1 << 8))  # these are rights on folders
    rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, handle))
    _syscall(f"landlock {path}", _LANDLOCK["add"], rules, 1, rule, 0)
    os.close(handle)


def _except(paths: tuple[str, ...], hidden: tuple[str, ...]) -> Iterator[str]:
    """Yield the paths, and where something below is hidden its neighbours one by one: Landlock only ever allows."""
    for path in _outermost(paths):
        if path in hidden:
            continue
        if any(one.startswith(path + os.sep) for one in hidden):
            yield from _except(tuple(entry.path for entry in os.scandir(path)), hidden)
        else:
            yield path


# ------------------------------------------------------------------ both ways: system calls, limits, capabilities

# Numbers on x86-64 and on 64-bit ARM (None: not there). Denied: what starts processes, reaches other processes or the
# network, changes the machine, or what Landlock does not watch (owners, modes and times of files).
_DENIED: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198),
    "connect": (42, 203),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "mount": (165, 40),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "setns": (308, 268),
    "chroot": (161, 51),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122),
    "kcmp": (312, 272),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "utimensat": (280, 88),
    "futimesat": (261, None),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "truncate": (76, 45),  # by a path; Landlock watches it from version 3 on
    "setrlimit": (160, 164),
    "open_by_handle_at": (304, 265),
    "personality": (135, 92),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "flock": (73, 32),
}
_CLONE, _CLONE3, _KILL, _TGKILL, _PRLIMIT = (56, 220), (435, 435), (62, 129), (234, 131), (302, 261)
_NEWER = 452  # from here on the list above knows nothing: not implemented
_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_LOAD, _EQUAL, _AT_LEAST, _HAS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _DIE, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCH, _FIRST = 0, 4, 16  # places in struct seccomp_data


def _filter(machine: str, pid: int) -> bytes:
    """Return the seccomp program, for the process that has this number in its PID namespace."""
    column = list(_AUDIT).index(machine)
    steps: list[tuple[int, int, int, int]] = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, _AUDIT[machine])]
    steps += [(_RETURN, 0, 0, _DIE), (_LOAD, 0, 0, _NUMBER)]
    steps += [(_AT_LEAST, 0, 1, _NEWER), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]  # x32 calls have numbers above 2**30
    steps += [(_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]  # then libc uses clone
    for numbers in _DENIED.values():
        if (number := numbers[column]) is not None:
            steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | errno.EPERM)]
    # A thread may start, a process may not; signals and limits may be its own.
    steps += [*_unless(_CLONE[column], (_HAS, 0x00010000)), *_unless(_PRLIMIT[column], (_EQUAL, 0))]
    steps += [*_unless(_KILL[column], (_EQUAL, pid)), *_unless(_TGKILL[column], (_EQUAL, pid))]
    steps += [(_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _unless(number: int, test: tuple[int, int]) -> list[tuple[int, int, int, int]]:
    """Return the steps that deny one call unless its first argument passes a test."""
    code, value = test
    steps = [(_EQUAL, 0, 4, number), (_LOAD, 0, 0, _FIRST), (code, 1, 0, value), (_RETURN, 0, 0, _ERRNO | errno.EPERM)]
    return [*steps, (_LOAD, 0, 0, _NUMBER)]


def _close_system_calls() -> None:
    machine = platform.machine()
    if machine not in _AUDIT or sys.byteorder != "little":
        raise WallError(errno.ENOSYS, f"seccomp: the processor {machine} is not known here")
    program = ctypes.create_string_buffer(_filter(machine, os.getpid()))
    count = len(program.raw) // 8
    packed = ctypes.create_string_buffer(struct.pack("HxxxxxxP", count, ctypes.addressof(program)))
    _prctl("seccomp", 22, 2, ctypes.addressof(packed))


def _limit(room: Room) -> None:
    """Bound memory, CPU time, file size and open files. Processes are bounded by the filter, which lets none start."""
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    wanted = {
        resource.RLIMIT_AS: used + room.memory * MEBI,
        resource.RLIMIT_CPU: room.seconds,
        resource.RLIMIT_FSIZE: room.disk * MEBI,
        resource.RLIMIT_NOFILE: 128,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for what, bound in wanted.items():
        hard = resource.getrlimit(what)[1]
        least = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(what, (least, least))


def _drop_capabilities() -> None:
    for number in range(64):
        if int(_libc().prctl(24, ctypes.c_ulong(number), 0, 0, 0)) < 0:  # PR_CAPBSET_DROP, until there is no such one
            break
    head, none = struct.pack("Ii", 0x20080522, 0), bytes(24)
    _checked("capset", int(_libc().capset(ctypes.create_string_buffer(head), ctypes.create_string_buffer(none))))


# ------------------------------------------------------------------ putting them up


def prepare(way: str) -> None:
    """Do what has to be done before the closed process is forked."""
    if way == "namespaces":
        _unshare()


def enter(way: str, room: Room) -> None:
    """Put up the walls around this process, which has one thread; raises WallError where one cannot be put up.

    `way` is one of WAYS. Afterwards the working folder is the scratch folder, and nothing takes the walls down again.
    """
    Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")  # if memory runs out, this one goes first
    _limit(room)
    _prctl("no_new_privs", 38, 1)
    if way == "namespaces":
        _own_files(room)
    _drop_capabilities()
    if way == "landlock":
        _landlock(room)
    _prctl("parent death", 1, signal.SIGKILL)  # if the watcher goes, so does this
    _prctl("dumpable", 4, 0)
    _close_system_calls()


def _refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except OSError:
        return True
    return False


def _left() -> None:
    if os.fork() == 0:
        os._exit(0)


def tried(room: Room, outside: int) -> str:
    """Return which wall does not hold, tried from inside, or an empty text; `outside` is a process not to reach."""
    checks: dict[str, Callable[[], object]] = {
        "a file outside can be written": lambda: os.open(f"{room.hidden[0]}/x", os.O_WRONLY | os.O_CREAT),
        "a file that holds answers can be read": lambda: _look_into(room.hidden[0]),
        "a file of the system can be written": lambda: os.open("/tmp/x", os.O_WRONLY | os.O_CREAT),
        "a process can be started": _left,
        "another process can be signalled": lambda: os.kill(outside, 0),
        "every process can be signalled": lambda: os.kill(-1, signal.SIGCONT),
        "a socket can be opened": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
        "a local socket can be opened": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
        "another process's environment can be read": lambda: os.open(f"/proc/{outside}/environ", os.O_RDONLY),
    }
    open_ones = [what for what, act in checks.items() if not _refused(act)]
    try:
        Path("own").write_text("", encoding="ascii")
        os.unlink("own")
    except OSError:
        open_ones.append("its own folder cannot be written")
    return open_ones[0] if open_ones else ""


def _look_into(folder: str) -> None:
    if not os.listdir(folder):
        raise FileNotFoundError("an empty folder holds no answers")
