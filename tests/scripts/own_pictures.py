"""Picture files for the scripts: real ones from Fashion-MNIST as PNG with a caption beside each, written without any library."""

import gzip
import os
import struct
import zlib

DATA = os.environ.get("DATA", "/usr/share/datasets/fashion-mnist")
NAMES = ["t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"]


def png(width, height, pixels, channels=1):
    """A picture of 8 bits per sample, rows from the top."""
    stride = width * channels
    rows = b"".join(b"\0" + pixels[y * stride:(y + 1) * stride] for y in range(height))

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2}[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def write(path, data):
    with open(path, "wb") as out:
        out.write(data)


def fashion(split="train"):
    """(height, width, pictures as bytes, label numbers)."""
    with gzip.open(os.path.join(DATA, split + "-images-idx3-ubyte.gz")) as stream:
        whole = stream.read()
    with gzip.open(os.path.join(DATA, split + "-labels-idx1-ubyte.gz")) as stream:
        labels = stream.read()[8:]
    _, count, height, width = struct.unpack(">IIII", whole[:16])
    area = height * width
    return height, width, [whole[16 + i * area:16 + (i + 1) * area] for i in range(count)], labels


def write_folder(folder, count, split="train", first=0, caption="a photo of a {}"):
    """`count` pictures with their captions beside them; returns (path, caption) of each."""
    height, width, pictures, labels = fashion(split)
    os.makedirs(folder, exist_ok=True)
    out = []
    for i in range(first, first + count):
        text = caption.format(NAMES[labels[i]])
        path = os.path.join(folder, f"{i:05}.png")
        write(path, png(width, height, pictures[i]))
        with open(os.path.join(folder, f"{i:05}.txt"), "w", encoding="utf-8") as beside:
            beside.write(text + "\n")
        out.append((path, text))
    return out
