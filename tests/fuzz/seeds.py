"""A few good inputs per fuzz target, from which the mutations start."""

import gzip
import json
import os
import struct
import zlib


def idx():
    pictures = struct.pack(">IIII", 0x803, 3, 2, 3) + bytes(range(18))
    labels = struct.pack(">II", 0x801, 3) + bytes([0, 2, 1])
    for a, b in ((pictures, labels), (gzip.compress(pictures), gzip.compress(labels)), (pictures[:-1], labels),
                 (struct.pack(">IIII", 0x803, 0xFFFFFFFF, 0xFFFFFFFF, 1), labels)):
        yield struct.pack("<H", len(a)) + a + b


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def safetensors_header():
    yield safetensors({"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
                       "b": {"dtype": "BF16", "shape": [3], "data_offsets": [16, 22]},
                       "__metadata__": {"format": "pt"}}, bytes(22))
    yield safetensors({name: {"dtype": name, "shape": [0, 4], "data_offsets": [0, 0]}
                       for name in ("F64", "F32", "BF16", "F16", "I64", "I32", "I16", "I8", "U8", "BOOL")})
    yield safetensors({"odd": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
                       "after": {"dtype": "F64", "shape": [], "data_offsets": [3, 11]}}, bytes(11))
    yield safetensors(b'{"a": {"dtype": "F32", "shape": ' + b"[" * 200 + b"]" * 200 + b', "data_offsets": [0, 4]}}', bytes(4))
    yield safetensors(b"{}")


def plugin_descriptor():
    fields = ("1;name=radar;version=0.1.0;provides=encoder:radar,connector:x;sdk=0.1.0;headers=6fb04a879f40;torch=2.13.0;"
              "torch_build=b7066ed9;cxx11_abi=1;stdlib=libstdc++;stdlib_debug=0;gxx_abi=1017;cplusplus=202002;cuda=none;"
              "sanitizer=none;sizes=40.96.24.;end=1;")
    magic = b"\x02omniloom-plugin\x03"
    yield b"\x7fELF" + bytes(40) + magic + fields.encode() + bytes(20)
    yield magic + b"twice" + magic + fields.encode()
    yield magic + fields.encode()[:60]


def png(width, height, colour=2, depth=8, extra=b""):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    rows = b"".join(b"\0" + bytes((width * channels * depth + 7) // 8) for _ in range(height))
    palette = chunk(b"PLTE", bytes(range(48))) if colour == 3 else b""
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)) + palette + extra
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def exif(orientation, order="<"):
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8)
    return head + struct.pack(order + "H", 1) + struct.pack(order + "HHIHH", 0x112, 3, 1, orientation, 0) + bytes(4)


def jpeg(width, height, marker=0xC0, parts=b"", channels=3):
    frame = struct.pack(">BHHB", 8, height, width, channels) + b"".join(bytes([i + 1, 0x11, 0]) for i in range(channels))
    return (b"\xff\xd8" + parts + b"\xff" + bytes([marker]) + struct.pack(">H", len(frame) + 2) + frame
            + b"\xff\xda\0\x08\x01\x01\0\0\x3f\0" + bytes(8) + b"\xff\xd9")


def webp(kind, body, more=b""):
    chunk = kind + struct.pack("<I", len(body)) + body + bytes(len(body) % 2)
    whole = b"WEBP" + chunk + more
    return b"RIFF" + struct.pack("<I", len(whole)) + whole


def picture_header():
    def app1(order):
        body = b"Exif\0\0" + exif(6, order)
        return b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body
    for colour, depth in ((0, 1), (0, 16), (2, 8), (3, 4), (4, 8), (6, 16)):
        yield png(5, 3, colour, depth)
    body = exif(5)
    yield png(2, 2, extra=struct.pack(">I", len(body)) + b"eXIf" + body + struct.pack(">I", zlib.crc32(b"eXIf" + body)))
    yield png(1, 1)[:16] + struct.pack(">II", 0x7FFFFFFF, 0x7FFFFFFF) + png(1, 1)[24:]
    yield jpeg(7, 9, parts=app1("<"))
    yield jpeg(65535, 65535, 0xC2, parts=app1(">"), channels=4)
    yield jpeg(3, 3, channels=1)
    yield b"GIF89a" + struct.pack("<HHBBB", 4, 4, 0x80, 0, 0) + bytes(6) + b"\x21\xf9\x04\0\0\0\0\0," + struct.pack("<HHHHB", 0, 0, 4, 4, 0) \
        + b"\x02\x03\x84\x8f\x05\0;"
    yield b"BM" + struct.pack("<IHHIIiiHHIIiiII", 70, 0, 0, 54, 40, 2, -2, 1, 24, 0, 16, 2835, 2835, 0, 0) + bytes(16)
    yield webp(b"VP8 ", b"\x30\x01\x00\x9d\x01\x2a" + struct.pack("<HH", 16, 16) + bytes(20))
    yield webp(b"VP8L", b"\x2f" + struct.pack("<I", 15 | 15 << 14) + bytes(12))
    chunk = b"EXIF" + struct.pack("<I", len(exif(3))) + exif(3)
    yield webp(b"VP8X", b"\x08\0\0\0" + (15).to_bytes(3, "little") + (15).to_bytes(3, "little"), chunk)
    yield b"II*\0" + struct.pack("<IH", 8, 2) + struct.pack("<HHIHHHHIHH", 0x100, 3, 1, 4, 0, 0x101, 3, 1, 4, 0) + bytes(4)
    yield b"P6\n2 2\n255\n" + bytes(12)


def chat_lines():
    def turn(role, text, sharegpt=False):
        return {"from": role, "value": text} if sharegpt else {"role": role, "content": text}
    yield json.dumps({"image": "a.png", "conversations": [turn("human", "<image>\nwhat?", True), turn("gpt", "a bag", True)]}).encode()
    yield json.dumps({"images": ["a.png", "b.png"], "messages": [turn("system", "s"), turn("user", "<image> or <image>?"),
                                                                 turn("assistant", "b")]}).encode()
    yield json.dumps({"messages": [{"role": "user", "content": [{"type": "image", "image": "a.png"}, {"type": "text", "text": "what?"}]},
                                   {"role": "assistant", "content": [{"type": "text", "text": "\u00e4 \U0001f600"}]}]}).encode()
    yield json.dumps({"image": "a.png", "text": "a caption"}).encode()
    yield b"\xef\xbb\xbf" + json.dumps({"instruction": "do", "input": "x", "output": "y", "history": [["a", "b"]]}).encode() + b"\r\n\r\n{}\r\n"
    yield b'[{"messages": []}]'
    yield b'{"messages": ' + b"[" * 300 + b"]" * 300 + b"}\n\n{\n"


def tokenizer_json():
    base = {"version": "1.0", "truncation": None, "padding": None, "normalizer": None,
            "added_tokens": [{"id": 258, "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
                              "normalized": False, "special": True}],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": None, "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": {}, "merges": ["a b", "ab c"]}}
    letters = [chr(c) for c in range(33, 127)] + [chr(c) for c in range(161, 173)] + [chr(c) for c in range(174, 256)]
    letters += [chr(256 + i) for i in range(256 - len(letters))]
    for token in letters + ["ab", "abc"]:
        base["model"]["vocab"][token] = len(base["model"]["vocab"])
    yield json.dumps(base).encode()
    base["model"]["merges"] = [["a", "b"], ["ab", "c"]]
    yield json.dumps(base, ensure_ascii=False, separators=(",", ":")).encode()
    base["normalizer"] = {"type": "NFC"}
    base["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}|[^\\s]+|\\s+"}, "behavior": "Isolated", "invert": False},
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]}
    yield json.dumps(base, ensure_ascii=False).encode()
    yield b'{"model": {"type": "Unigram"}}'


def write(name, folder):
    os.makedirs(folder, exist_ok=True)
    for number, seed in enumerate(globals()[name]()):
        with open(os.path.join(folder, f"seed-{number}"), "wb") as out:
            out.write(seed)
