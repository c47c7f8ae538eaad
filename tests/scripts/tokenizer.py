"""A vocabulary that the program learned, beside the `tokenizers` package of PyPI: equal ids for every text, and equal text for the ids."""

import glob
import json
import os
import random
import shutil
import sys
import sysconfig
import unittest

import tokenizers

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import program  # noqa: E402

SENTENCES = [
    "Zwölf Boxkämpfer jagen Viktor quer über den Sylter Deich.", "Στο τέλος, η αλήθεια λάμπει.", "Съешь же ещё этих мягких французских булок",
    "אָלֶף־בֵּית עברי, בבקשה", "نص عربي مع أرقام ١٢٣٤", "यह हिन्दी में एक वाक्य है।", "এটি একটি বাংলা বাক্য", "ਇਹ ਪੰਜਾਬੀ ਵਾਕ ਹੈ", "આ ગુજરાતી છે",
    "இது ஒரு தமிழ் வாக்கியம்", "ఇది తెలుగు వాక్యం", "ಇದು ಕನ್ನಡ ವಾಕ್ಯ", "ഇത് മലയാളം", "මෙය සිංහල", "นี่คือประโยคภาษาไทย", "ນີ້ແມ່ນພາສາລາວ", "ဒါက မြန်မာစာပါ",
    "ეს ქართული წინადადებაა", "Սա հայերեն է", "ይህ አማርኛ ነው", "東京は日本の首都です。", "한국어 문장입니다.", "这是一个中文句子。", "ᠮᠣᠩᠭᠣᠯ ᠪᠢᠴᠢᠭ", "བོད་ཡིག",
    "ភាសាខ្មែរ", "ᏣᎳᎩ", "ⵜⴰⵎⴰⵣⵉⵖⵜ", "𐎠𐎼𐎹", "𒀀𒁀", "𝒳𝟙𝟚 ½ Ⅷ ² ③",
]
EMOJI = ["👩‍👩‍👧‍👦", "🇩🇪🇫🇷", "👍🏿", "❤️", "🫠", "1️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "☃", "♟︎"]
BLANKS = [" ", "  ", "    ", "\t", "\t\t", " \t ", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u00a0", "\u1680", "\u180e", "\u2003", "\u200b", "\u2028", "\u202f", "\u3000", "\ufeff"]
CODE = ["x+=1;", "if(a[i]<=b){", "/* * */", "#define X(a) a##_b", "'s", "'S", "it's", "we'LL", "'re're", "''", "don't've", "::", "->", "0x1fULL", "3.14e-10", "a_b__c",
        "https://example.org/?q=1&r=%20", "<|im_end|>", "<|endoftext|", "\\n", "$HOME", "`ls`", "a" * 300, "ab" * 200, "=" * 80, "1234567890" * 5]


def mixed_line(rng):
    parts = []
    for _ in range(rng.randrange(1, 12)):
        kind = rng.randrange(8)
        if kind < 3:
            words = rng.choice(SENTENCES).split(" ")
            parts.append(" ".join(rng.choice(words) for _ in range(rng.randrange(1, 6))))
        elif kind == 3:
            parts.append(rng.choice(EMOJI) * rng.randrange(1, 3))
        elif kind == 4:
            parts.append(rng.choice(CODE))
        elif kind == 5:
            parts.append(str(rng.randrange(10 ** rng.randrange(1, 15))))
        elif kind == 6:
            parts.append("".join(chr(rng.choice([rng.randrange(0x20, 0x250), rng.randrange(0x370, 0x1000), rng.randrange(0x1F300, 0x1FAFF)])) for _ in range(5)))
        else:
            parts.append("")
        parts.append(rng.choice(BLANKS) if rng.random() < 0.6 else "")
    return "".join(parts)


def text_files():
    """Files that every Debian and every Python has."""
    licences = sorted(path for path in glob.glob("/usr/share/common-licenses/*") if os.path.isfile(path))
    sources = sorted(glob.glob(os.path.join(sysconfig.get_paths()["stdlib"], "*.py")))
    return licences + sources


class TokenizerFile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = program.temp_folder()
        cls.folder = cls.temp.name
        rng = random.Random(1)
        files = text_files()
        cls.learned, cls.others = files[::2], files[1::2]
        generated = cls.write("generated.txt", "\n".join(mixed_line(rng) for _ in range(3000)) + "\n")
        cls.json = os.path.join(cls.folder, "tokenizer.json")
        code, out, err = program.run("data", "tokenizer", *cls.learned, generated, "--vocab", "6000", "--out", cls.json, "--special", "<|extra|>")
        assert code == 0, err
        cls.report = out
        cls.package = tokenizers.Tokenizer.from_file(cls.json)
        cls.package.encode_special_tokens = True  # text is text

    @classmethod
    def tearDownClass(cls):
        cls.temp.cleanup()

    @classmethod
    def write(cls, name, text):
        path = os.path.join(cls.folder, name)
        with open(path, "wb") as out:
            out.write(text if isinstance(text, bytes) else text.encode("utf-8"))
        return path

    def ok(self, *args):
        code, out, err = program.run(*args)
        self.assertEqual(code, 0, err)
        return out

    def ids_of(self, *files, tokenizer=None, whole=False):
        out = self.ok("data", "tokenizer", *files, "--encode", tokenizer or self.json, *(["--whole"] if whole else []))
        return [json.loads(line) for line in out.splitlines()]

    def compare(self, lines, ours, package=None):
        theirs = (package or self.package).encode_batch(lines, add_special_tokens=False)
        self.assertEqual(len(ours), len(lines))
        for line, mine, their in zip(lines, ours, theirs):
            self.assertEqual(mine, their.ids, repr(line[:200]))

    def test_the_report(self):
        self.assertIn("tokens  6,000: 256 bytes, 5,740 learned, 4 special", self.report)
        self.assertIn("in the recipe: data.tokenizer: " + self.json, self.report)
        self.assertRegex(self.report, r"1\.00 -> [2-9]\.\d\d bytes per token")
        self.assertEqual(self.package.get_vocab_size(), 6000)
        self.assertEqual([self.package.token_to_id(name) for name in ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|extra|>")], [5996, 5997, 5998, 5999])

    def test_equal_ids_and_texts_line_by_line(self):
        rng = random.Random(2)
        lines = [mixed_line(rng) for _ in range(12000)] + [sentence for sentence in SENTENCES] + EMOJI + BLANKS + CODE + [""]
        for path in self.others[:60]:
            with open(path, encoding="utf-8", errors="ignore", newline="") as text:
                lines += text.read().split("\n")
        lines = [line for line in lines if "\n" not in line]
        self.assertGreater(len(lines), 20000)
        ours = self.ids_of(self.write("lines.txt", "".join(line + "\n" for line in lines)))
        self.compare(lines, ours)
        self.assertEqual(self.package.decode_batch(ours), lines)
        decoded = self.ok("data", "tokenizer", self.write("ids.txt", "".join(json.dumps(ids) + "\n" for ids in ours)), "--decode", self.json)
        self.assertEqual([json.loads(line) for line in decoded.split("\n")[:-1]], lines)

    def test_equal_ids_for_whole_files(self):
        texts, paths = [], []
        for path in self.learned[:20] + self.others[:40]:
            with open(path, "rb") as file:
                content = file.read()
            try:
                texts.append(content.decode("utf-8"))
                paths.append(path)
            except UnicodeDecodeError:
                continue
        self.assertGreater(sum(map(len, texts)), 500_000)
        self.compare(texts, self.ids_of(*paths, whole=True))

    def test_a_vocabulary_of_the_package_is_read(self):
        package = tokenizers.Tokenizer(tokenizers.models.BPE())
        package.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        package.decoder = tokenizers.decoders.ByteLevel()
        package.post_processor = tokenizers.processors.ByteLevel(trim_offsets=False)
        trainer = tokenizers.trainers.BpeTrainer(vocab_size=1500, special_tokens=["<|endoftext|>", "<|im_start|>"], show_progress=False,
                                                 initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
        rng = random.Random(4)
        lines = [mixed_line(rng) for _ in range(2000)] + CODE
        package.train_from_iterator(lines[:1500], trainer)
        path = os.path.join(self.folder, "package.json")
        package.save(path)
        package.encode_special_tokens = True
        self.compare(lines, self.ids_of(self.write("package.txt", "".join(line + "\n" for line in lines)), tokenizer=path), package)

    def test_special_tokens_never_come_out_of_text(self):
        lines = ["<|im_start|>user", "a<|im_end|>", "<|endoftext|><|extra|>", "<|im_start|>" * 3]
        ours = self.ids_of(self.write("special.txt", "".join(line + "\n" for line in lines)))
        self.compare(lines, ours)
        self.assertLess(max(max(ids) for ids in ours), 5996)
        plain = tokenizers.Tokenizer.from_file(self.json)
        self.assertEqual(plain.encode("a<|im_end|>").ids[-1], 5998)  # where the package reads them, they are what we wrote

    def test_every_character_is_classed_alike(self):
        # Merges of 'a', '1', '!' and a tab with any byte: ids show whether a character belongs to the word before it.
        spell = {}
        other = 0x100
        for byte in range(256):
            shown = 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE
            spell[byte] = chr(byte if shown else other)
            other += 0 if shown else 1
        vocab = {spell[byte]: byte for byte in range(256)}
        merges = []
        for left in "a1!\t":
            for byte in range(256):
                merges.append([spell[ord(left)], spell[byte]])
                vocab["".join(merges[-1])] = len(vocab)
        content = {
            "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
            "added_tokens": [{"id": len(vocab), "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False,
                      "byte_fallback": False, "vocab": vocab, "merges": merges},
        }
        path = self.write("classes.json", json.dumps(content))
        codes = [code for code in [*range(0x33500), *range(0xE0000, 0xE0200), 0x10FFFF] if code != 10 and not 0xD800 <= code < 0xE000]
        lines = []
        for start in range(0, len(codes), 64):
            lines.append("".join(f"a{c}x1{c}x!{c}x\t{c}xa {c}y " for c in map(chr, codes[start:start + 64])))
        ours = self.ids_of(self.write("codes.txt", "".join(line + "\n" for line in lines)), tokenizer=path)
        self.compare(lines, ours, tokenizers.Tokenizer.from_file(path))

    def test_bytes_that_are_no_text_survive(self):
        rng = random.Random(3)
        content = bytes(rng.randrange(256) for _ in range(20000)) + b"\xff\xfe end"
        ids = self.ids_of(self.write("bytes.bin", content), whole=True)[0]
        table = {token: name for name, token in self.package.get_vocab().items()}
        spelled = "".join(table[token] for token in ids)
        alphabet = self.package.encode("".join(chr(c) for c in range(128))).ids
        self.assertTrue(alphabet)
        self.assertEqual(len(spelled), len(content))  # one visible character per byte

    def test_chat_files_and_recipes(self):
        lines = []
        for i in range(50):
            lines.append(json.dumps({"messages": [{"role": "user", "content": f"<image>Which colour has door {i}?"}, {"role": "assistant", "content": f"Door {i} is vermilion."}],
                                     "images": ["absent.png"]}))
        lines.append("{broken")
        chat = self.write("doors.jsonl", "\n".join(lines) + "\n")
        out = self.ok("data", "tokenizer", chat, "--out", os.path.join(self.folder, "doors.json"))
        self.assertIn("skipped 1 sample", out)
        self.assertIn("doors.jsonl:51", out)
        self.assertIn(" vermilion", tokenizers.Tokenizer.from_file(os.path.join(self.folder, "doors.json")).decode([self.token("doors.json", "Ġvermilion")]))
        self.assertIsNotNone(self.token("doors.json", "assistant"))
        recipe = program.write_recipe(self.folder)
        self.ok("data", "tokenizer", recipe, "--vocab", "300", "--out", os.path.join(self.folder, "recipe.json"), "--samples", "40")
        self.assertIsNotNone(self.token("recipe.json", "Ġsquare"))

    def token(self, name, spelling):
        return tokenizers.Tokenizer.from_file(os.path.join(self.folder, name)).token_to_id(spelling)

    def test_a_run_keeps_its_tokenizer(self):
        recipe = program.write_recipe(self.folder, steps=6)
        mine = os.path.join(self.folder, "mine.json")
        shutil.copy(self.json, mine)
        run, again = os.path.join(self.folder, "run"), os.path.join(self.folder, "again")
        self.ok("train", recipe, "--run", run, "train.steps=3", "data.tokenizer=" + mine)
        with open(mine, "rb") as a, open(os.path.join(run, "tokenizer.json"), "rb") as b:
            self.assertEqual(a.read(), b.read())
        os.remove(mine)
        self.ok("train", "--resume", run, "train.steps=6")
        self.ok("eval", run)
        self.ok("generate", run, os.path.join(self.folder, "train-images.gz") + "#0")
        self.ok("train", os.path.join(run, "recipe.resolved.yaml"), "--run", again)
        self.assertTrue(os.path.exists(os.path.join(again, "tokenizer.json")))
        code, _, err = program.run("train", recipe, "data.tokenizer=" + mine)
        self.assertEqual(code, 2)
        self.assertIn("mine.json: no such file", err)

    def test_mistakes_are_one_line(self):
        text = self.write("a.txt", "some words\n")
        out = os.path.join(self.folder, "out.json")
        for arguments, expected in [
            ((text, "--vocab", "100", "--out", out), "vocabulary of 100: expected 259"),
            ((text, "--out", self.json), "exists; give another --out, or --replace"),
            ((text, "--out", "x.txt"), "expected a name that ends in .json"),
            ((text + "x", "--out", out), "no such file; did you mean"),
            ((text, "--encode", "byte"), "did you mean 'bytes'?"),
            ((self.write("bad.txt", "[1, 99999]\n"), "--decode", self.json), "bad.txt:1: expected ids from 0 to 5999, found 99999"),
            ((self.write("worse.txt", "[1\n"), "--decode", self.json), "is no valid JSON"),
            ((self.write("empty.txt", ""), "--out", out), "no text to learn from"),
        ]:
            code, _, err = program.run("data", "tokenizer", *arguments)
            self.assertEqual(code, 2, err)
            self.assertIn(expected, err)
            self.assertEqual(err.count("\n"), 1, err)
        self.assertFalse(os.path.exists(out))


if __name__ == "__main__":
    unittest.main()
