"""A copy of a person's project for one run: what the run writes stays in it.

Files are copied, but for large ones: those are links, which a run replaces before it writes there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from launchscope.errors import UsageError
from launchscope.git import top_level
from launchscope.host import holds_packages
from launchscope.model import Target

_LARGE = 1 << 20  # bytes
_MOST_COPIED = 256 << 20  # bytes of all files together
_MOST_ENTRIES = 20_000  # then whole folders are links
_LARGEST_TEXT, _MOST_TEXTS = 1 << 20, 100  # bytes, and files, that are compared
_DATA = 1000  # so many files without a program among them are data
_ABOVE = 3  # folders above the project whose other entries a script may read: `../data`
# Libraries write these without Python, which could not replace a link.
_OUTPUTS = (".safetensors", ".h5", ".hdf5", ".onnx", ".ckpt", ".pt", ".pth", ".sqlite", ".db")
_LEFT_OUT = frozenset({"__pycache__", "wandb", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")
_LINKED = frozenset({".git", "node_modules"})


@dataclass(frozen=True)
class Project:
    """The folder with all of a script's own files, and the working directory below it."""

    root: Path
    folder: Path

    @classmethod
    def of(cls, target: Target, folder: Path) -> Project:
        """The repository of the working directory or, without one, that directory; a script that is
        elsewhere widens it to the folder that holds both."""
        root = folder
        with contextlib.suppress(UsageError):
            top = top_level("adopt", folder) or folder
            # A repository can say that its files are elsewhere; the run would be in no copy then.
            root = top if folder.is_relative_to(top) else folder
        if target.kind == "script":
            script = Path(os.path.realpath(folder / target.name))
            if not script.is_relative_to(root):
                root = Path(os.path.commonpath([root, script.parent]))
        if root in (Path(root.anchor), Path(os.path.expanduser("~"))):
            raise UsageError(
                f"the files of the script would be all of {root}",
                hint="run launchscope from the folder of the project",
            )
        return cls(root, folder)


class Mirror:
    """A copy of `project` at `place`, which must not exist yet. Raises OSError."""

    def __init__(self, project: Project, place: Path):
        self._project = project
        self._others = place.parent  # copies themselves, where TMPDIR is inside of the project
        self._left, self._bytes = _MOST_ENTRIES, _MOST_COPIED
        self._top = place / "project"
        self._top.mkdir(parents=True)
        self.root = self._surrounded(project.root)
        self._copy(project.root, self.root)
        self.folder = self.path_of(project.folder)
        self.folder.mkdir(parents=True, exist_ok=True)

    def path_of(self, path: Path) -> Path:
        """Where a file of the project is in the copy."""
        return self.root / os.path.relpath(path, self._project.root)

    def original(self, path: Path) -> Path:
        """The file of the project of which this is the copy."""
        return self._project.root / os.path.relpath(path, self.root)

    def target(self, target: Target) -> Target:
        """The same one, with the paths of the copy where it names those of the project."""
        name = self._moved(target.name) if target.kind == "script" else target.name
        return replace(target, name=name, args=tuple(map(self._moved, target.args)))

    def write(self, path: Path, content: bytes) -> None:
        """Put this in place of a file of the project."""
        inside = self.path_of(path)
        for folder in reversed(inside.parents):
            if folder.is_relative_to(self.root) and folder.is_symlink():
                _open_up(folder)
        with contextlib.suppress(FileNotFoundError):
            inside.unlink()
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.write_bytes(content)

    def _moved(self, word: str) -> str:
        root = os.path.join(self._project.root, "")
        before, equals, path = word.rpartition("=")
        if path == str(self._project.root) or path.startswith(root):
            return f"{before}{equals}{self.path_of(Path(path))}"
        return word

    def written(self, since_ns: int) -> dict[str, str]:
        """The texts of short files that are new, or were changed after that time, by their path, in
        which a script may repeat that of its folder."""
        found: dict[str, str] = {}
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(
                name for name in folders if name[0] != "." and name not in _LEFT_OUT
            )
            for name in sorted(names):
                path = Path(folder, name)
                with contextlib.suppress(OSError, UnicodeDecodeError):
                    made = path.lstat()
                    is_text = stat.S_ISREG(made.st_mode) and made.st_size <= _LARGEST_TEXT
                    if is_text and made.st_mtime_ns >= since_ns and len(found) < _MOST_TEXTS:
                        text = path.read_bytes().decode()
                        if "\0" not in text:
                            name = os.path.relpath(path, self.root)
                            found[name.replace(str(self.root), "")] = text
        return found

    def remove(self) -> None:
        shutil.rmtree(self._top, ignore_errors=True)

    def _surrounded(self, root: Path) -> Path:
        """Where the copy of `root` goes, below folders with links to what is beside it."""
        place = self._top
        above = [folder for folder in root.parents if folder != Path(root.anchor)][:_ABOVE]
        for folder in reversed(above):
            place = place / folder.name
            place.mkdir()
            inner = root if folder == root.parent else above[above.index(folder) - 1]
            with contextlib.suppress(PermissionError), os.scandir(folder) as entries:
                for entry in entries:
                    if Path(entry.path) not in (inner, self._others) and _is_plain(entry):
                        (place / entry.name).symlink_to(entry.path)
        return place / root.name

    def _copy(self, source: Path, target: Path) -> None:
        target.mkdir()
        with os.scandir(source) as entries:
            found = sorted(entries, key=lambda entry: entry.is_dir(follow_symlinks=False))
        folders = []
        for entry in found:
            made = target / entry.name
            self._left -= 1
            if entry.name in _LEFT_OUT or entry.name.endswith(".launchscope"):
                continue
            if Path(entry.path) == self._others or not _is_plain(entry):
                continue
            if entry.is_dir(follow_symlinks=False) and not _is_linked(entry):
                folders.append((Path(entry.path), made))
            elif entry.is_file() and self._is_copied(entry):
                shutil.copy2(entry.path, made)
            else:
                made.symlink_to(os.path.realpath(entry.path))
        for folder, made in folders:
            if self._left > 0 and not _is_data(folder):
                self._copy(folder, made)
            else:
                made.symlink_to(folder)

    def _is_copied(self, entry: os.DirEntry[str]) -> bool:
        size = entry.stat().st_size
        is_data = size > _LARGE and not entry.name.endswith(_OUTPUTS)
        if is_data or size > self._bytes or not os.access(entry.path, os.R_OK):
            return False
        self._bytes -= size
        return True


def _open_up(link: Path) -> None:
    """A folder with links to the files of the folder that the link leads to."""
    target = os.path.realpath(link)
    link.unlink()
    link.mkdir()
    for name in os.listdir(target):
        (link / name).symlink_to(os.path.join(target, name))


def _is_linked(entry: os.DirEntry[str]) -> bool:
    if not os.access(entry.path, os.R_OK | os.X_OK):  # the script cannot look into it either
        return True
    marks = (os.path.join(entry.path, mark) for mark in _ENVIRONMENT)
    return entry.name in _LINKED or holds_packages(entry.path) or any(map(os.path.exists, marks))


def _is_data(folder: Path) -> bool:
    """Whether a folder holds many files and no program: a link to it will do."""
    names = os.listdir(folder)
    return len(names) > _DATA and not any(name.endswith((".py", *_OUTPUTS)) for name in names)


def _is_plain(entry: os.DirEntry[str]) -> bool:
    """A file or a folder, and no socket, pipe, or link to nothing or to itself."""
    with contextlib.suppress(OSError):
        mode = entry.stat().st_mode
        return stat.S_ISREG(mode) or stat.S_ISDIR(mode)
    return False


def environment(scratch: Path) -> dict[str, str]:
    """Of a run that is only compared: the same order of sets and names in each, trackers that keep
    to themselves, and temporary files where they go with the run."""
    temporary = scratch / "t"  # short: paths of sockets hold 108 bytes
    temporary.mkdir(exist_ok=True)
    return {
        "PYTHONHASHSEED": "0",
        "TMPDIR": str(temporary),
        "TORCHINDUCTOR_CACHE_DIR": os.environ.get("TORCHINDUCTOR_CACHE_DIR", str(scratch / "i")),
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(temporary),
        "WANDB_RESUME": "never",
        "WANDB_SILENT": "true",
        "NEPTUNE_MODE": "offline",
        "CLEARML_OFFLINE_MODE": "1",
        "MLFLOW_TRACKING_URI": (temporary / "mlruns").as_uri(),
        "COMET_MODE": "disabled",
        "SWANLAB_MODE": "disabled",
        "AIM_ACCESS_LOG": "0",
    }
