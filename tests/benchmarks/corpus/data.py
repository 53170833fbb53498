"""Writes small data of the kinds that the scripts look for, so that no script downloads any.

Each generator takes the folder or file that its script reads. What it writes is the same every
time, has the layout of the real data set, and is large enough for several hundred steps. Pixels,
words and edges are random: the scripts train on them, but learn little.
"""

from __future__ import annotations

import gzip
import pickle
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["GENERATORS"]

NODES, FEATURES, CLASSES, EDGES = 2708, 300, 7, 5278  # Cora, with a fifth of its features


def _random() -> np.random.Generator:
    return np.random.default_rng(0)


def _idx(array: npt.NDArray[np.uint8]) -> bytes:
    """The IDX format: two zero bytes, type 8 for bytes, the number of dimensions, their sizes."""
    sizes = b"".join(struct.pack(">I", size) for size in array.shape)
    return bytes((0, 0, 8, array.ndim)) + sizes + array.tobytes()


def _digits(count: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Noise that is brighter in a square whose place says the digit, and the digits."""
    random = _random()
    labels = random.integers(0, 10, count, dtype=np.uint8)
    images = random.integers(0, 64, (count, 28, 28), dtype=np.uint8)
    for digit in range(10):
        row, column = 4 + 10 * (digit // 5), 3 + 5 * (digit % 5)
        images[labels == digit, row : row + 6, column : column + 4] += 128
    return images, labels


def mnist(root: Path, name: str = "MNIST") -> None:
    """As torchvision's MNIST leaves it: 60,000 images to train on and 10,000 to test."""
    folder = root / name / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 60_000), ("t10k", 10_000)):
        images, labels = _digits(count)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(_idx(images))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(_idx(labels))


def fashion_mnist(root: Path) -> None:
    """The same images in the folder of torchvision's FashionMNIST."""
    mnist(root, "FashionMNIST")


def binarized_mnist(file: Path) -> None:
    """train_data and valid_data: rows of 784 zeros and ones, 20,000 to train on."""
    file.parent.mkdir(parents=True, exist_ok=True)
    images, _ = _digits(25_000)
    rows = (images.reshape(len(images), -1) > 48).astype(np.float32)
    np.savez_compressed(file, train_data=rows[:20_000], valid_data=rows[20_000:])


def folder(root: Path) -> None:
    """An empty folder, where a script expects one to write to."""
    root.mkdir(parents=True, exist_ok=True)


def _png(image: npt.NDArray[np.uint8]) -> bytes:
    """An 8-bit RGB image, (height, width, 3)."""
    height, width, _ = image.shape
    pixels = zlib.compress(np.insert(image.reshape(height, -1), 0, 0, axis=1).tobytes(), 1)

    def chunk(kind: bytes, content: bytes) -> bytes:
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def _photo(random: np.random.Generator, height: int, width: int) -> npt.NDArray[np.uint8]:
    """Coarse noise, which compresses well."""
    coarse = random.integers(0, 256, (height // 16 + 1, width // 16 + 1, 3), dtype=np.uint8)
    return coarse.repeat(16, axis=0).repeat(16, axis=1)[:height, :width]


def image_folder(root: Path) -> None:
    """Ten classes: 32 images each in train/, 8 each in validation/, of 256 by 256 pixels."""
    random = _random()
    for part, count in (("train", 32), ("validation", 8)):
        for label in range(10):
            folder = root / part / f"class_{label}"
            folder.mkdir(parents=True, exist_ok=True)
            for index in range(count):
                (folder / f"{index}.png").write_bytes(_png(_photo(random, 256, 256)))


def bsds300(root: Path) -> None:
    """BSDS300/images below the folder: 200 images of 481 by 321 pixels to train on, 20 to test."""
    random = _random()
    for part, count in (("train", 200), ("test", 20)):
        folder = root / "BSDS300" / "images" / part
        folder.mkdir(parents=True, exist_ok=True)
        for index in range(count):
            (folder / f"{index}.png").write_bytes(_png(_photo(random, 321, 481)))


def _sentences(words: int) -> str:
    """Lines of 5 to 30 words from a vocabulary of 5,000, common ones first."""
    random = _random()
    ranks = np.minimum(random.zipf(1.2, words), 5_000)
    lengths = random.integers(5, 30, words // 5)
    lines, at = [], 0
    for length in lengths:
        lines.append(" ".join(f"word{rank}" for rank in ranks[at : at + length]))
        at += int(length)
        if at >= words:
            break
    return "\n".join(lines) + "\n"


def words(file: Path) -> None:
    """200,000 words."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_sentences(200_000))


def wikitext(root: Path) -> None:
    for part, count in (("train", 200_000), ("valid", 20_000), ("test", 20_000)):
        root.mkdir(parents=True, exist_ok=True)
        (root / f"{part}.txt").write_text(_sentences(count))


def characters(file: Path) -> None:
    """A million characters, of 65 different ones and in lines."""
    letters = "".join(map(chr, range(32, 96))) + "\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        "".join(_random().choice(list(letters), 1_000_000)) + "O God, O God!\n" + letters
    )


def character_tokens(root: Path) -> None:
    """train.bin and val.bin with 16-bit tokens of 65 characters, meta.pkl with the characters."""
    root.mkdir(parents=True, exist_ok=True)
    alphabet = list("\n" + "".join(map(chr, range(32, 96))))
    for part, count in (("train", 1_000_000), ("val", 100_000)):
        tokens = _random().integers(0, len(alphabet), count, dtype=np.uint16)
        tokens.tofile(root / f"{part}.bin")
    names = dict(enumerate(alphabet))
    meta = {
        "vocab_size": len(alphabet),
        "itos": names,
        "stoi": {name: at for at, name in names.items()},
    }
    (root / "meta.pkl").write_bytes(pickle.dumps(meta))


def enwik8(file: Path) -> None:
    """The 95 MB that the scripts read: 16 kB of letters again and again, so that it is small."""
    file.parent.mkdir(parents=True, exist_ok=True)
    block = _random().integers(32, 127, 16_000, dtype=np.uint8).tobytes()
    with gzip.open(file, "wb", compresslevel=1) as out:
        for _ in range(95):
            out.write((block * 63)[:1_000_000])


def _citations() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Of a graph: the features of its nodes, their classes, and its edges as pairs of nodes."""
    random = _random()
    features = (random.random((NODES, FEATURES)) < 0.05).astype(np.float32)
    features[:, 0] = 1
    labels = np.arange(NODES) % CLASSES
    edges = np.stack((random.integers(0, NODES, EDGES), random.integers(0, NODES, EDGES)), axis=1)
    return features, labels, edges[edges[:, 0] != edges[:, 1]]


def cora(root: Path) -> None:
    """cora.content and cora.cites: identifiers, features and class names; pairs of identifiers."""
    root.mkdir(parents=True, exist_ok=True)
    features, labels, edges = _citations()
    with (root / "cora.content").open("w") as content:
        for node, (row, label) in enumerate(zip(features.astype(int), labels, strict=True)):
            content.write("\t".join((str(node), *map(str, row), f"Class_{label}")) + "\n")
    (root / "cora.cites").write_text("".join(f"{one}\t{two}\n" for one, two in edges))


def planetoid(root: Path) -> None:
    """The raw files of Planetoid's Cora: pickled matrices, lists of neighbors, and test nodes."""
    folder = root / "Cora" / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    features, labels, edges = _citations()
    classes = np.eye(CLASSES, dtype=np.int32)[labels]
    neighbors: dict[int, list[int]] = {node: [] for node in range(NODES)}
    for one, two in edges.tolist():
        neighbors[one].append(two)
        neighbors[two].append(one)
    train, test = slice(140), slice(NODES - 1000, NODES)
    rest = slice(NODES - 1000)
    contents = {
        "x": features[train], "allx": features[rest], "tx": features[test],
        "y": classes[train], "ally": classes[rest], "ty": classes[test], "graph": neighbors,
    }  # fmt: skip
    for name, content in contents.items():
        (folder / f"ind.cora.{name}").write_bytes(pickle.dumps(content, protocol=2))
    (folder / "ind.cora.test.index").write_text("".join(f"{n}\n" for n in range(NODES)[test]))


def _graphs(root: Path, name: str, count: int, largest: int, labels: int) -> None:
    """Graphs in the text format of the TU datasets: 10 to `largest` nodes in a ring with chords."""
    folder = root / name / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    random = _random()
    edges, nodes = [], []
    first = 1
    for graph in range(1, count + 1):
        size = int(random.integers(10, largest + 1))
        pairs = [(at, (at + 1) % size) for at in range(size)]
        pairs += [
            tuple(pair) for pair in random.integers(0, size, (size // 2, 2)) if pair[0] != pair[1]
        ]
        for one, two in pairs:
            edges += [f"{first + one}, {first + two}", f"{first + two}, {first + one}"]
        nodes += [str(graph)] * size
        first += size
    written = {
        "A": edges,
        "graph_indicator": nodes,
        "node_labels": [str(label) for label in random.integers(0, labels, len(nodes))],
        "graph_labels": [str(label) for label in random.integers(0, 2, count)],
    }
    for part, lines in written.items():
        (folder / f"{name}_{part}.txt").write_text("\n".join(lines) + "\n")


def mutag(root: Path) -> None:
    _graphs(root, "MUTAG", 188, 28, 7)


def proteins(root: Path) -> None:
    _graphs(root, "PROTEINS", 1113, 60, 3)


GENERATORS: dict[str, Callable[[Path], None]] = {
    generator.__name__: generator
    for generator in (
        mnist, fashion_mnist, binarized_mnist, folder, image_folder, bsds300, words,
        wikitext, characters, character_tokens, enwik8, cora, planetoid, mutag, proteins,
    )
}  # fmt: skip
