#!/usr/bin/env python3
"""The data of recipes/omni_toy.yaml, from packages of Debian: omni_toy.py [FOLDER], by default data/omni_toy.

  photos/       800 pieces cut from photographs (python3-skimage), each with a caption. Sides are log-normal: half of them are below 56
                pixels, some are the whole photograph, so that a few pictures are most of the work.
  words.jsonl   20,000 words with their meanings (wordnet-base): text without pictures
  clothes/      28x28 pictures of clothes (dataset-fashion-mnist)

Packages that are not installed are downloaded with apt-get, as it is set up here, and unpacked without being installed. Nothing but
Python's own library is needed. --packages FOLDER takes files from a folder in which packages were unpacked.
"""

import argparse
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

PHOTOS = {"astronaut": "an astronaut", "brick": "a brick wall", "camera": "a man with a camera", "cell": "a living cell", "chelsea": "a cat",
          "coffee": "a cup of coffee", "coins": "old coins", "grass": "grass", "gravel": "gravel", "ihc": "stained tissue", "moon": "the moon",
          "motorcycle_left": "a motorcycle", "page": "a printed page"}
FOLDERS = {"python3-skimage": "usr/lib/python3/dist-packages/skimage/data", "wordnet-base": "usr/share/wordnet",
           "dataset-fashion-mnist": "usr/share/datasets/fashion-mnist"}
MEDIAN_SIDE, SPREAD, LEAST_SIDE = 56, 0.9, 16  # pixels; the spread is that of the logarithm


def fail(text):
    sys.exit("omni_toy.py: " + text)


def find_packages(given, temporary):
    """Folder of each package's data: given, installed, or downloaded."""
    roots = {name: given or "/" for name in FOLDERS}
    missing = [name for name, inside in FOLDERS.items() if not os.path.isdir(os.path.join(roots[name], inside))]
    if missing and given:
        fail(f"{given} holds no {FOLDERS[missing[0]]}")
    if missing:
        print("downloading", *missing)
        try:
            done = subprocess.run(["apt-get", "download", "-qq", *missing], cwd=temporary, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            fail(f"no apt-get here; unpack {', '.join(missing)} yourself and give --packages FOLDER")
        if done.returncode != 0:
            fail(f"apt-get download {' '.join(missing)}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'failed'}")
        for name in missing:
            archive = [file for file in os.listdir(temporary) if file.startswith(name + "_")][0]
            roots[name] = os.path.join(temporary, name)
            subprocess.run(["dpkg-deb", "-x", os.path.join(temporary, archive), roots[name]], check=True)
    return {name: os.path.join(roots[name], inside) for name, inside in FOLDERS.items()}


def read_png(path):
    """(width, height, channels, rows of bytes) of a picture of 8 bits per channel, grey or RGB, not interlaced."""
    with open(path, "rb") as file:
        data = file.read()
    at, packed = 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        at += 12 + length
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            if depth != 8 or colour not in (0, 2) or interlaced:
                fail(f"{path}: depth {depth}, colour type {colour}: not a picture of the kind that this reads")
        if kind == b"IDAT":
            packed += body
    step = 3 if colour == 2 else 1
    raw, stride, rows = zlib.decompress(packed), width * step, []
    before = bytearray(stride)
    for y in range(height):
        kind, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1 : (y + 1) * (stride + 1)])
        for x in range(stride if kind else 0):
            left = line[x - step] if x >= step else 0
            corner = before[x - step] if x >= step else 0
            if kind == 1:
                guess = left
            elif kind == 2:
                guess = before[x]
            elif kind == 3:
                guess = (left + before[x]) // 2
            else:
                p = left + before[x] - corner
                guess = min(left, before[x], corner, key=lambda v: abs(p - v))
            line[x] = (line[x] + guess) & 255
        rows.append(bytes(line))
        before = line
    return width, height, step, rows


def write_png(path, width, height, step, rows):
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))  # noqa: E731
    with open(path, "wb") as out:
        out.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2 if step == 3 else 0, 0, 0, 0))
                  + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows), 6)) + chunk(b"IEND", b""))


def cut_photos(package, folder, count, rng):
    os.makedirs(folder)
    names = [name for name in PHOTOS if os.path.isfile(os.path.join(package, name + ".png"))]
    if not names:
        fail(f"{package}: none of the photographs is there")
    pictures = {name: read_png(os.path.join(package, name + ".png")) for name in names}
    for number in range(count):
        name = names[number % len(names)]
        width, height, step, rows = pictures[name]
        sides = [min(most, max(LEAST_SIDE, round(MEDIAN_SIDE * math.exp(rng.gauss(0, SPREAD))))) for most in (width, height)]
        x, y = (rng.randrange(most - side + 1) for most, side in zip((width, height), sides))
        cut = [row[x * step : (x + sides[0]) * step] for row in rows[y : y + sides[1]]]
        form = "a wide" if sides[0] > 1.5 * sides[1] else "a tall" if sides[1] > 1.5 * sides[0] else "a"
        path = os.path.join(folder, f"{number:04d}")
        write_png(path + ".png", *sides, step, cut)
        with open(path + ".txt", "w", encoding="utf-8") as caption:
            caption.write(f"{form} piece of {PHOTOS[name]}")


def write_words(package, path, count, rng):
    lines = []
    for part in ("noun", "verb", "adj", "adv"):
        try:
            with open(os.path.join(package, "data." + part), encoding="utf-8") as words:
                for line in words:
                    if line.startswith("  ") or " | " not in line:  # the licence
                        continue
                    fields, meaning = line.split(" | ", 1)
                    lines.append(f"{fields.split()[4].replace('_', ' ')}: {meaning.strip()}")
        except FileNotFoundError:
            fail(f"{package}: no data.{part}")
    with open(path, "w", encoding="utf-8") as out:
        for text in rng.sample(lines, min(count, len(lines))):
            out.write(json.dumps({"text": text}) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default="data/omni_toy", help="must not be there yet; default data/omni_toy")
    parser.add_argument("--packages", help="folder of unpacked packages, instead of installed or downloaded ones")
    parser.add_argument("--photos", type=int, default=800, help="pieces of photographs")
    parser.add_argument("--words", type=int, default=20000, help="words with meanings")
    options = parser.parse_args()
    if os.path.exists(options.folder):
        fail(f"{options.folder} is there already; remove it, or name another folder")
    with tempfile.TemporaryDirectory(prefix="omniloom-data-") as temporary:
        packages = find_packages(options.packages, temporary)
        made = options.folder.rstrip("/") + ".part"  # so that what is there is whole
        shutil.rmtree(made, ignore_errors=True)
        os.makedirs(made)
        cut_photos(packages["python3-skimage"], os.path.join(made, "photos"), options.photos, random.Random(1))
        write_words(packages["wordnet-base"], os.path.join(made, "words.jsonl"), options.words, random.Random(2))
        clothes = packages["dataset-fashion-mnist"]
        os.makedirs(os.path.join(made, "clothes"))
        for name in ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"):
            shutil.copyfile(os.path.join(clothes, name), os.path.join(made, "clothes", name))
        os.rename(made, options.folder)
    print(f"{options.folder}: {options.photos} pieces of photographs, {options.words} words, pictures of clothes")


if __name__ == "__main__":
    main()
