"""Commands around data and answers, through the program: data check, data preview, eval --data, generate in its forms, env."""

import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import time
import unittest
import zlib

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import program  # noqa: E402

COLOURS = {"red": (220, 30, 30), "green": (30, 180, 60), "blue": (40, 60, 220), "grey": (128, 128, 128)}


def write_png(path, width, height, colour):
    rows = (b"\0" + bytes(colour) * width) * height
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))  # noqa: E731
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    with open(path, "wb") as out:
        out.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write_lines(path, values):
    with open(path, "w", encoding="utf-8") as out:
        out.writelines(json.dumps(value, ensure_ascii=False) + "\n" for value in values)


def read_lines(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def question(picture, answer=None):
    turns = [{"role": "user", "content": "<image>Which colour?"}]
    if answer is not None:
        turns.append({"role": "assistant", "content": answer})
    return {"messages": turns, "images": [picture]}


def make_data(folder):
    """40 pictures of four colours; every fourth conversation has a second turn, and one of every other colour. Returns the colour of each."""
    os.makedirs(os.path.join(folder, "img"))
    names = [list(COLOURS)[i % 4] for i in range(40)]
    samples = []
    for i, name in enumerate(names):
        write_png(os.path.join(folder, "img", f"{i}.png"), *[(8, 8), (12, 8), (30, 40)][i % 3], COLOURS[name])
        sample = question(f"img/{i}.png", name)
        if i % 4 == 3 or i in (20, 25, 30):
            sample["messages"] += [{"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "Yes."}]
        samples.append(sample)
    write_lines(os.path.join(folder, "chat.jsonl"), samples)
    with open(os.path.join(folder, "recipe.yaml"), "w", encoding="utf-8") as out:
        out.write(f"""name: colours
model:
  encoders: {{image: {{plugin: vit, image_size: 8, patch: 4, channels: 3, width: 16, depth: 1, heads: 2}}}}
  connectors: {{image: {{plugin: mlp, hidden: 16}}}}
  backbone: {{plugin: llama, width: 32, depth: 2, heads: 2, kv_heads: 1, ffn: 64}}
data:
  budget: 256
  train: [{{path: "{folder}/chat.jsonl"}}]
  eval: [{{path: "{folder}/chat.jsonl"}}]
train: {{steps: 160, batch: 8 samples, lr: 1e-2, warmup: 5, threads: 1}}
eval: {{max_new_tokens: 12}}
checkpoint: {{every: 0}}
""")
    return names


class Commands(unittest.TestCase):
    def ok(self, *args, **options):
        code, out, err = program.run(*args, **options)
        self.assertEqual(code, 0, err)
        return out, err

    def one_line(self, *args, wanted):
        code, _, err = program.run(*args)
        self.assertEqual(code, 2, err)
        lines = [line for line in err.splitlines() if not re.match(r"(\S+  )?sample|eval  ", line)]
        self.assertEqual(len(lines), 1, err)
        self.assertIn(wanted, lines[0])


class Data(Commands):
    def setUp(self):
        self.temp = program.temp_folder()
        self.folder = self.temp.name
        make_data(self.folder)
        self.recipe = self.path("recipe.yaml")

    def tearDown(self):
        self.temp.cleanup()

    def path(self, name):
        return os.path.join(self.folder, name)

    def spoil(self):
        samples = read_lines(self.path("chat.jsonl"))
        samples[2]["images"] = ["img/missing.png"]
        samples[5] = {"mesages": []}
        samples[6] = question("img/6.png")  # nothing to learn
        with open(self.path("img/9.png"), "wb"):
            pass
        write_lines(self.path("chat.jsonl"), samples)

    def test_check_counts_what_is_there(self):
        out, _ = self.ok("data", "check", self.recipe)
        self.assertIn("40 · 40 usable · 0 skipped · 0 left out", out)
        self.assertIn("40 · 8x8 smallest · 12x8 median · 30x40 largest", out)
        self.assertIn("5.0 per epoch, of 8 samples", out)
        self.assertEqual(out.count("\ntrain.0\n") + out.count("\neval.0\n"), 2)
        # Tokens of the first sample, by hand: the borders of turns, roles, 4 slots and the bytes of the texts.
        turns = 2 * (1 + len("\n") + 1 + len("\n")) + len("user") + len("assistant")
        self.assertIn(f"{turns + 4 + len('Which colour?') + len('red')} min", out)

    def test_check_names_what_cannot_be_used(self):
        self.spoil()
        code, out, err = program.run("data", "check", self.recipe, "--list", self.path("skips.jsonl"))
        self.assertEqual(code, 2)  # 3 of 40 are above data.max_skip_rate
        self.assertIn("data.train: 3 of 40 samples cannot be used (7.5 %), more than data.max_skip_rate = 0.05", err)
        self.assertIn("40 · 36 usable · 3 skipped · 1 left out", out)
        skips = [skip for skip in read_lines(self.path("skips.jsonl")) if skip["source"] == "train.0"]
        self.assertEqual([skip["index"] for skip in skips], [2, 5, 6, 9])
        self.assertEqual([skip["left_out"] for skip in skips], [False, False, True, False])
        self.assertIn("missing.png: no such file", skips[0]["reason"])
        self.assertIn("chat.jsonl:6", skips[1]["reason"])
        self.assertIn("did you mean 'messages'", skips[1]["reason"])
        for skip in skips:
            self.assertIn(skip["name"], out)
        self.ok("data", "check", self.recipe, "data.max_skip_rate=0.1")

    def test_check_goes_on_where_training_would_stop(self):
        code, out, err = program.run("data", "check", self.recipe, "data.budget=60")
        self.assertEqual(code, 2)
        self.assertIn("would stop  13", out)
        self.assertIn("13 of 40 samples would stop a run", err)
        out, _ = self.ok("data", "check", self.recipe, "data.budget=60", "data.over_long=drop")
        self.assertIn("13 left out", out)

    def test_check_of_a_file_and_a_folder_alone(self):
        self.spoil()
        code, out, _ = program.run("data", "check", self.path("chat.jsonl"))
        self.assertEqual(code, 2)
        self.assertIn("without a model", out)
        self.assertIn("40 · 36 usable · 3 skipped · 1 left out", out)
        out, err = self.ok("data", "check", self.path("img"))
        self.assertIn("no caption", err)
        self.assertIn("40 · 39 usable · 1 skipped", out)
        self.one_line("data", "check", self.path("chat.json"), wanted="no such file; did you mean")
        self.one_line("data", "check", self.path("chat.jsonl"), "train.steps=3", wanted="no recipe")

    def test_check_stops_when_asked(self):
        line = json.dumps({"text": "word " * 60})
        with open(self.path("long.jsonl"), "w", encoding="utf-8") as out:
            out.write((line + "\n") * 200000)
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        with subprocess.Popen([program.PROGRAM, "data", "check", self.path("long.jsonl")], env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            self.assertIn("sample", process.stderr.readline())
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn("stopped; there are 200,000", out)

    def test_preview_is_one_page(self):
        self.spoil()
        page = self.path("out/preview.html")
        os.makedirs(self.path("out"))
        out, _ = self.ok("data", "preview", self.recipe, "--samples", "40", "--out", page)
        self.assertIn("40 samples of data.train", out)
        with open(page, encoding="utf-8") as text:
            html = text.read()
        self.assertEqual(html.count("<li><header>"), 40)
        self.assertEqual(html.count("as the model sees it<br>8x8, 4 slots"), 37 - 1)  # of usable samples, all with a picture
        self.assertIn("missing.png: no such file", html)
        self.assertIn("&lt;|im_start|&gt;", html)
        self.assertNotIn("http://", html)
        self.assertNotIn("https://", html)
        self.assertLess(len(html), 3_000_000)
        self.ok("data", "preview", self.recipe, "--split", "eval", "--samples", "3", "--out", page)
        self.one_line("data", "preview", self.recipe, "--split", "trian", wanted="did you mean 'train'")

    def test_help_and_missing_subcommand(self):
        for command in (["data"], ["data", "check"], ["data", "preview"], ["data", "tokenizer"], ["env"]):
            out, _ = self.ok(*command, "--help")
            self.assertIn("Usage", out)
        self.one_line("data", wanted="omniloom data --help")

    def test_env(self):
        out, _ = self.ok("env", env={"OMNILOOM_PLUGIN_PATH": "/nowhere"})
        for word in ("omniloom", "libtorch", "opencv", "cpu", "cores", "peak", "memory", "/nowhere"):
            self.assertIn(word, out)
        out, _ = self.ok("env", "--json")
        values = json.loads(out)
        self.assertGreater(values["peak_flops"]["fp32"], 1e8)
        self.assertGreater(values["memory_bytes"], 1e8)
        self.assertGreaterEqual(values["cpu"]["cores"], 1)
        self.assertIn("vit", [plugin["name"] for plugin in values["plugins"]["found"]])
        self.assertNotIn("peak_flops", json.loads(self.ok("env", "--json", "--quick")[0]))


class Answers(Commands):
    @classmethod
    def setUpClass(cls):
        cls.temp = program.temp_folder()
        cls.folder = cls.temp.name
        cls.names = make_data(cls.folder)
        cls.run_folder = os.path.join(cls.folder, "run")
        code, _, err = program.run("train", os.path.join(cls.folder, "recipe.yaml"), "--run", cls.run_folder)
        assert code == 0, err

    @classmethod
    def tearDownClass(cls):
        cls.temp.cleanup()

    def path(self, name):
        return os.path.join(self.folder, name)

    def test_eval_of_the_runs_own_data_and_of_other(self):
        answers, numbers = self.path("a.jsonl"), self.path("e.json")
        out, _ = self.ok("eval", self.run_folder, "--answers", answers, "--json", numbers)
        with open(numbers, encoding="utf-8") as text:
            own = json.load(text)
        self.assertEqual(own["samples"], 40)
        self.assertIn(f"exact {100 * own['exact_match']:.2f} %", out)
        self.assertIn(f"token accuracy {100 * own['token_accuracy']:.2f} %", out)
        self.assertGreater(own["exact_match"], 0.9)
        lines = read_lines(answers)
        self.assertEqual(sum(line["correct"] for line in lines), round(own["exact_match"] * 40))
        self.assertEqual(lines[0]["prompt"], "Which colour?")
        self.assertEqual(lines[0]["truth"], "red")
        self.assertEqual(lines[3]["prompt"], "user: Which colour?\nassistant: grey\nuser: Sure?")
        self.assertEqual(lines[3]["truth"], "Yes.")
        # Less budget per pass, other batches: the same numbers.
        _, _ = self.ok("eval", self.run_folder, "--json", numbers, "data.budget=128", "eval.batch=7")
        with open(numbers, encoding="utf-8") as text:
            small = json.load(text)
        self.assertAlmostEqual(small["loss"], own["loss"], delta=1e-5)
        self.assertEqual(small["supervised_tokens"], own["supervised_tokens"])

        write_lines(self.path("other.jsonl"), [question("img/0.png", "red"), question("img/1.png", "purple"), question("img/2.png")])
        out, err = self.ok("eval", self.run_folder, "--data", self.path("other.jsonl"), "--json", numbers)
        with open(numbers, encoding="utf-8") as text:
            other = json.load(text)
        self.assertEqual((other["samples"], other["skipped"], other["exact_match"]), (2, 1, 0.5))
        self.assertIn("skipped 1", out)
        self.assertIn("other.jsonl:3: no supervised token", err)
        out, _ = self.ok("eval", self.run_folder, "eval.metric=token_accuracy")
        self.assertNotIn("exact", out)
        self.one_line("eval", self.run_folder, "--data", self.path("nothing.jsonl"), wanted="no such file")
        self.one_line("eval", self.run_folder, "--data", self.path("other.jsonl"), "--report", wanted="--report")

    def test_pictures_and_prompts(self):
        pictures = [self.path(f"img/{i}.png") for i in range(4)]
        out, _ = self.ok("generate", self.run_folder, *pictures, "--prompt", "Which colour?")
        self.assertEqual(out.splitlines(), [f"{p}: {name}" for p, name in zip(pictures, self.names)])
        out, _ = self.ok("generate", self.run_folder, *pictures[:2], "--together", "--prompt", "Which colour?")
        self.assertEqual(len(out.splitlines()), 1)
        self.assertNotIn("img/", out)
        plain, _ = self.ok("generate", self.run_folder, "--plain", "--prompt", "Which")
        self.assertTrue(plain.startswith("Which"))
        self.one_line("generate", self.run_folder, self.path("img/none.png"), "--prompt", "x", wanted="no such file")
        self.one_line("generate", self.run_folder, wanted="nothing is asked")
        self.one_line("generate", self.run_folder, "--plain", "--system", "x", "--prompt", "x", wanted="--chat")
        self.one_line("generate", self.run_folder, "--prompt", "x", "--top-p", "2", wanted="--top-p")
        self.one_line("generate", self.run_folder, "--prompt", "x", "--output", "y", wanted="--input")

    def test_sampling_is_a_function_of_seed_and_sample(self):
        hot = ["--prompt", "Which colour?", "--temperature", "5", "--max-new-tokens", "20"]
        pictures = [self.path(f"img/{i}.png") for i in range(3)]
        first, _ = self.ok("generate", self.run_folder, *pictures, *hot, "--seed", "7")
        again, _ = self.ok("generate", self.run_folder, *pictures, *hot, "--seed", "7")
        self.assertEqual(first, again)
        alone, _ = self.ok("generate", self.run_folder, pictures[1], *hot, "--seed", "7")
        self.assertIn(alone, first)
        other, _ = self.ok("generate", self.run_folder, *pictures, *hot, "--seed", "8")
        self.assertNotEqual(first, other)
        twice, _ = self.ok("generate", self.run_folder, pictures[0], pictures[0], *hot)
        self.assertEqual(twice.count("img/0.png: "), 2)
        self.assertNotEqual(*twice.rstrip("\n").split("\n" + pictures[0] + ": ", 1))
        cold, _ = self.ok("generate", self.run_folder, pictures[0], *hot[:2], "--temperature", "9", "--top-k", "1")
        self.assertEqual(cold, f"{pictures[0]}: red\n")

    def test_a_file_of_prompts(self):
        prompts, output = self.path("in/prompts.jsonl"), self.path("out/answers.jsonl")
        os.makedirs(self.path("in"), exist_ok=True)
        write_lines(prompts, [question("../img/0.png", "wrong"), question("../img/1.png"),
                              {"id": "x1", "prompt": "Which colour?", "image": "../img/2.png"},
                              {"prompt": "Which colour?", "images": ["../img/none.png"]}, {"nothing": 1},
                              {"messages": [{"role": "user", "content": "<image>Which colour?"}, {"role": "assistant", "content": "red"},
                                            {"role": "user", "content": "Sure?"}], "images": ["../img/0.png"]}])
        _, err = self.ok("generate", self.run_folder, "--input", prompts, "--output", output)
        lines = read_lines(output)
        self.assertEqual([line["name"] for line in lines], [f"{prompts}:{i + 1}" for i in range(6)])
        self.assertEqual([line.get("output") for line in lines], ["red", "green", "blue", None, None, "Yes."])
        self.assertEqual(lines[0]["truth"], "wrong")
        self.assertEqual(lines[2]["id"], "x1")
        self.assertIn("none.png: no such file", lines[3]["error"])
        self.assertIn("no form is recognised", lines[4]["error"])
        self.assertEqual(lines[5]["prompt"], "user: Which colour?\nassistant: red\nuser: Sure?")
        self.assertIn("2 of 6 could not be answered", err)
        out, _ = self.ok("generate", self.run_folder, "--input", prompts)
        self.assertEqual([json.loads(line) for line in out.splitlines()], lines)
        # Passes of a few samples each give the same answers.
        write_lines(prompts, [{"nothing": 1}])
        code, _, _ = program.run("generate", self.run_folder, "--input", prompts, "--output", output)
        self.assertEqual(code, 2)
        self.one_line("generate", self.run_folder, "--input", prompts, "--output", prompts, wanted="another one")

    def talk(self, text, *flags):
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        done = subprocess.run([program.PROGRAM, "generate", self.run_folder, "-i", *flags], input=text, env=environment, text=True,
                              capture_output=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines(), done.stderr

    def test_conversation_from_a_pipe(self):
        out, err = self.talk(f"/picture {self.path('img/3.png')}\nWhich colour?\nSure?\n/picture {self.path('img/none.png')}\n/resset\n"
                             f"/reset\n/picture {self.path('img/2.png')}\nWhich colour?\n")
        self.assertEqual(out, ["grey", "Yes.", "blue"])
        self.assertIn("none.png: no such file", err)
        self.assertIn("did you mean '/reset'", err)
        out, _ = self.talk("Hello\n/quit\nnot read\n")
        self.assertEqual(len(out), 1)
        out, _ = self.talk(f"/picture {self.path('img/0.png')}\nWhich colour?\n//reset", "--system", "x")
        self.assertEqual(len(out), 2)

    def test_conversation_on_a_terminal(self):
        leader, follower = pty.openpty()
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        # Sampled far from what was learned, the answer does not end by itself soon.
        process = subprocess.Popen([program.PROGRAM, "generate", self.run_folder, "-i", "--temperature", "50", "--top-k", "200",
                                    "--max-new-tokens", "20000", "--seed", "4"],
                                   stdin=follower, stdout=follower, stderr=follower, env=environment, start_new_session=True,
                                   preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0))
        os.close(follower)
        seen = b""

        def until(condition):
            nonlocal seen
            end = time.monotonic() + 60
            while not condition(seen):
                self.assertLess(time.monotonic(), end, seen[-500:])
                if select.select([leader], [], [], 1)[0]:
                    try:
                        seen += os.read(leader, 4096)
                    except OSError:
                        break
            seen, out = b"", seen
            return out

        try:
            until(lambda text: text.endswith(b"> "))
            for _ in range(6):  # an answer may end by chance before it is stopped
                os.write(leader, b"Hello\n")
                until(lambda text: len(text) > 60 or text.endswith(b"\n> "))
                os.write(leader, b"\x03")
                out = until(lambda text: text.endswith(b"> ") or process.poll() is not None)
                if b" ...\r\n> " in out:
                    break
            else:
                self.fail("no answer could be stopped")
            self.assertIsNone(process.poll(), "Ctrl-C stops the answer, not the program")
            os.write(leader, b"/reset\n")
            until(lambda text: text.endswith(b"> "))
            os.write(leader, b"\x04")
            until(lambda text: process.poll() is not None)
            self.assertEqual(process.wait(30), 0)
        finally:
            process.kill()
            process.wait()
            os.close(leader)


if __name__ == "__main__":
    unittest.main()
