"""Writes what the recipes of tests/bench read: make_data.py FOLDER. JSON lines and PNG files, by the standard library.

A text of n bytes is n + 2 tokens of the bytes tokenizer, with the marks of its beginning and end; so texts are cut to give exactly
the lengths of workload.py."""

import json
import os
import random
import struct
import sys
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import workload  # noqa: E402

MARKS = 2  # beginning and end
LETTERS = "abcdefghijklmnopqrstuvwxyz "


def text(rng, tokens):
    return "".join(rng.choices(LETTERS, k=tokens - MARKS))


def png(side, rng):
    """An RGB picture with some structure and some noise."""
    red, green, blue = (rng.randrange(256) for _ in range(3))
    rows = bytearray()
    for y in range(side):
        rows.append(0)
        noise = rng.randbytes(side)
        for x in range(side):
            rows += bytes(((red + x) & 255, (green + y) & 255, (blue + (noise[x] >> 3)) & 255))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(rows), 1)) + chunk(b"IEND", b"")


def write_lines(path, samples):
    with open(path, "w", encoding="utf-8") as out:
        for sample in samples:
            out.write(json.dumps(sample) + "\n")


def write(folder, seed=0):
    """lm.jsonl, vlm.jsonl, mixture.jsonl and the pictures they name."""
    rng = random.Random(seed)
    os.makedirs(folder, exist_ok=True)
    pictures = []
    for i in range(2 * workload.PICTURES):
        pictures.append(f"{i}.png")
        with open(os.path.join(folder, pictures[-1]), "wb") as out:
            out.write(png(workload.PICTURE_SIDE, rng))
    write_lines(os.path.join(folder, "lm.jsonl"), [{"text": text(rng, workload.SEQUENCE)} for _ in range(32 * workload.SEQUENCES)])
    write_lines(os.path.join(folder, "vlm.jsonl"),
                [{"image": pictures[i % len(pictures)], "caption": text(rng, workload.CAPTION_TOKENS)} for i in range(32 * workload.PICTURES)])
    batches = workload.mixture_batches()
    mixture = []
    for batch in [batches[i] for i in workload.MIXTURE_WARM] + batches:
        for picture, tokens in batch:
            sample = {"image": rng.choice(pictures), "caption": text(rng, tokens)} if picture else {"text": text(rng, tokens)}
            mixture.append(sample)
    write_lines(os.path.join(folder, "mixture.jsonl"), mixture)


def main():
    if len(sys.argv) != 2:
        print("make_data.py FOLDER", file=sys.stderr)
        return 2
    write(sys.argv[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
