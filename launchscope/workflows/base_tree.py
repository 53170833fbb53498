"""The files of a commit in a git worktree of their own, in a temporary folder.

They are written as git stores them: no filter, no hook and no setting of the repository runs. What
a checkout would bring besides (submodules, files of Git LFS) comes from what this machine has.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from launchscope.errors import InputError, MeasureError, UsageError, raised_as
from launchscope.git import git
from launchscope.wording import listed_first
from launchscope.workflows.temporary import PREFIX, TemporaryFolder

_LINK, _PROGRAM, _SUBMODULE = b"120000", b"100755", b"160000"
_AT_ONCE = 64 << 20  # bytes of files that are read in one go
_NEVER_LINKED = frozenset({".git", "__pycache__"})
_LFS_START, _LFS_LONGEST = b"version https://git-lfs.github.com/spec/", 1024
_MOST_NAMED = 5


@dataclass(frozen=True)
class _Entry:
    mode: bytes
    name: str  # of the object
    size: int
    path: str


@dataclass
class _Missing:
    """Paths below the top that this machine does not have as they were committed."""

    submodules: list[str] = field(default_factory=list)
    lfs: list[str] = field(default_factory=list)


class BaseTree:
    """The worktree at `path`, which has the name of the repository's folder, until `remove`.
    Messages call the commit `named`. Raises InputError if git cannot make it or if
    something in it is missing, MeasureError if there is no room."""

    def __init__(self, top: Path, commit: str, named: str, links: Sequence[Path] = ()):
        self._top, self._named, self._registered = top, named, False
        self._links: list[tuple[Path, Path | bytes]] = []  # and where they lead to
        self._folder: TemporaryFolder | None = None
        try:
            self._folder = TemporaryFolder()
            self.path = Path(os.path.realpath(self._folder)) / top.name
            self._make(commit, links)
        except OSError as error:
            self.remove()
            raise MeasureError(
                f"the files of the base version cannot be written: {error.strerror or error}",
                hint="set TMPDIR to a writable folder with room",
            ) from None
        except BaseException:  # Ctrl-C included: no worktree is left behind
            self.remove()
            raise

    def _make(self, commit: str, links: Sequence[Path]) -> None:
        if self.path.is_relative_to(self._top):
            raise UsageError(
                f"temporary files would lie in the repository, in {self.path.parent.parent}",
                hint="set TMPDIR to a folder outside it",
            )
        _forget_gone(self._top)
        words = ("worktree", "add", "--quiet", "--no-checkout", "--detach")
        self._registered = True
        made = _asked(self._top, *words, os.fspath(self.path), commit)
        if made is None:
            raise InputError(
                f"git cannot make a worktree of {self._named}",
                hint=f"git worktree add --detach FOLDER {commit[:12]} shows why",
            )
        missing = _Missing()
        self._write(self._top, commit, self.path, missing)
        # The last, so that no file is written through one of them.
        for path, target in self._links:
            os.symlink(os.fsencode(target), os.fsencode(path))
        _asked(self.path, "read-tree", commit)  # for a script that asks git about its version
        for link in links:
            self._link(link, self.path / link.relative_to(self._top))
        self._require_all(missing)

    def remove(self) -> None:
        """Remove the folder, and git's note of it."""
        if self._folder is not None:
            self._folder.remove()
        if self._registered:
            self._registered = False
            with contextlib.suppress(InputError):
                _asked(self._top, "worktree", "remove", "--force", os.fspath(self.path))

    def _write(self, repository: Path, commit: str, place: Path, missing: _Missing) -> None:
        """Write every file of the commit below `place`, and note its links."""
        listing = _asked(repository, "ls-tree", "-r", "-l", "-z", "--full-tree", commit)
        if listing is None:
            raise InputError(
                f"git does not have the files of {self._named}",
                hint="this clone is not complete: git fetch origin, without --depth and --filter",
            )
        entries = [_entry(row) for row in listing.split(b"\0") if row]
        for entry in entries:
            parts = entry.path.split("/")
            if any(part.lower() in ("", ".", "..", ".git") for part in parts):
                raise InputError(f"{self._named} has a path that git refuses: {entry.path}")
        files = [entry for entry in entries if entry.mode != _SUBMODULE]
        store = _lfs_store(repository)
        for entry, content in self._contents(repository, files):
            path = place / entry.path
            path.parent.mkdir(parents=True, exist_ok=True)
            if entry.mode == _LINK:
                self._links.append((path, content))
            elif content.startswith(_LFS_START) and entry.size < _LFS_LONGEST:
                self._write_large(repository, store, entry, content, path, missing)
            else:
                _write_new(path, content, 0o777 if entry.mode == _PROGRAM else 0o666)
        for entry in entries:
            if entry.mode == _SUBMODULE:
                self._write_submodule(repository / entry.path, entry, place, missing)

    def _contents(
        self, repository: Path, entries: Sequence[_Entry]
    ) -> Iterator[tuple[_Entry, bytes]]:
        """Each entry with its content."""
        start = 0
        while start < len(entries):
            end, size = start, 0
            while end < len(entries) and (end == start or size + entries[end].size <= _AT_ONCE):
                size += entries[end].size
                end += 1
            names = "".join(f"{entry.name}\n" for entry in entries[start:end]).encode()
            found, at = _asked(repository, "cat-file", "--batch", stdin=names) or b"", 0
            for entry in entries[start:end]:
                head_end = found.find(b"\n", at) + 1
                if not found[at:head_end].endswith(b" blob %d\n" % entry.size):
                    raise InputError(
                        f"git does not have {entry.path} of {self._named}",
                        hint="this clone is not complete: git fetch --refetch origin",
                    )
                yield entry, found[head_end : head_end + entry.size]
                at = head_end + entry.size + 1
            start = end

    def _write_large(
        self,
        repository: Path,
        store: Path | None,
        entry: _Entry,
        pointer: bytes,
        path: Path,
        missing: _Missing,
    ) -> None:
        """A file of Git LFS, whose `pointer` is committed: a link to what LFS has fetched. Where
        the current tree has no more than the pointer, the base version has none either."""
        fields = dict(line.split(b" ", 1) for line in pointer.splitlines() if b" " in line)
        digest = fields.get(b"oid", b"").removeprefix(b"sha256:").decode("ascii", "replace")
        fetched = store / digest[:2] / digest[2:4] / digest if store and digest.isalnum() else None
        if fetched is not None and fetched.is_file():
            self._links.append((path, fetched))
        elif _starts_as_pointer(repository / entry.path):
            _write_new(path, pointer, 0o666)
        else:
            missing.lfs.append(os.path.relpath(path, self.path))

    def _write_submodule(self, source: Path, entry: _Entry, place: Path, missing: _Missing) -> None:
        """The submodule's commit of then, from the repository of its checkout. Where the current
        tree has not checked it out, the base version does without it too."""
        path = place / entry.path
        if os.path.lexists(source / ".git"):
            if _asked(source, "cat-file", "-e", f"{entry.name}^{{commit}}") is not None:
                path.mkdir(parents=True)
                self._write(source, entry.name, path, missing)
                return
        elif source.is_dir() and not any(source.iterdir()):
            path.mkdir(parents=True)
            return
        missing.submodules.append(os.path.relpath(path, self.path))

    def _link(self, source: Path, place: Path) -> None:
        """Links what the base version does not have; a folder that both have is gone through."""
        if not os.path.lexists(place):
            if not Path(os.path.realpath(place.parent)).is_relative_to(self.path):
                raise InputError(
                    f"--link: {source.relative_to(self._top)} would lie outside the files of "
                    f"{self._named}, where a folder of its path is a symbolic link",
                    hint="leave it out: the base version reads what its own link leads to",
                )
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(source)
        elif source.is_dir() and place.is_dir() and not (source.is_symlink() or place.is_symlink()):
            for child in source.iterdir():
                if child.name not in _NEVER_LINKED:
                    self._link(child, place / child.name)

    def _require_all(self, missing: _Missing) -> None:
        def lacking(paths: Sequence[str]) -> list[str]:
            return [path for path in paths if not os.path.lexists(self.path / path)]

        submodules, large = lacking(missing.submodules), lacking(missing.lfs)
        if submodules:
            raise InputError(
                f"the commits of these submodules at {self._named} are not on this machine: "
                f"{listed_first(submodules, _MOST_NAMED)}",
                hint="git submodule update --init --recursive, and git fetch in each of them",
            )
        if large:
            raise InputError(
                f"Git LFS has not fetched these files of {self._named}: "
                f"{listed_first(large, _MOST_NAMED)}",
                hint="git lfs fetch origin REF; or --link PATH, to use the current file",
            )


def _entry(row: bytes) -> _Entry:
    """An entry from a row like `100644 blob NAME    SIZE<tab>PATH`."""
    head, _, path = row.partition(b"\t")
    mode, _, name, size = head.split()
    return _Entry(mode, name.decode("ascii"), int(size) if size.isdigit() else 0, os.fsdecode(path))


def _asked(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes | None:
    """What git prints; None if it fails."""
    with raised_as(InputError, "git cannot be run"):
        done = git(*arguments, folder=folder, stdin=stdin)
    return done.stdout if done.returncode == 0 else None


def _forget_gone(top: Path) -> None:
    """Have git forget the worktrees of ours whose folder is gone, which a killed launchscope has
    left. Those of anybody else stay: their disk may be away for now."""
    listing = _asked(top, "worktree", "list", "--porcelain", "-z") or b""
    for line in listing.split(b"\0"):
        path = Path(os.fsdecode(line.removeprefix(b"worktree ")))
        is_ours = line.startswith(b"worktree ") and path.parent.name.startswith(PREFIX)
        if is_ours and not path.parent.exists():
            _asked(top, "worktree", "remove", "--force", os.fspath(path))


def _lfs_store(repository: Path) -> Path | None:
    """Where Git LFS keeps what it has fetched."""
    common = _asked(repository, "rev-parse", "--git-common-dir")
    if common is None:
        return None
    configured = _asked(repository, "config", "--get", "lfs.storage") or b"lfs"
    place = repository / os.fsdecode(common.rstrip(b"\n")) / os.fsdecode(configured.rstrip(b"\n"))
    return place / "objects"


def _starts_as_pointer(path: Path) -> bool:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(len(_LFS_START)) == _LFS_START
    return False


def _write_new(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
