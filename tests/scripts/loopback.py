"""Several ranks as threads (processes.py: as processes): the layout does not change what is trained, runs resume under another number of ranks, and
whatever goes wrong on any rank is one line and one exit code."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import program  # noqa: E402

HEAD = re.compile(r"omniloom 0|warning: --nproc |model  |layout  |data  |run  |resume  |step +[0-9]+/")  # what a run says anyway


def metrics(run):
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def kept_up_to(run, step):
    """Leaves only the checkpoints of the first steps, as if the run had been killed there."""
    folder = os.path.join(run, "checkpoints")
    for name in os.listdir(folder):
        if int(name.rsplit("-", 1)[1]) > step:
            os.remove(os.path.join(folder, name, "manifest.json"))


class Ranks:
    """What must hold for ranks of any kind."""

    flag = kind = ""

    def setUp(self):
        temp = program.temp_folder()
        self.addCleanup(temp.cleanup)
        self.folder = temp.name
        self.recipe = program.write_recipe(self.folder, steps=12, extra_train=", precision: fp64", heads="heads: 4, kv_heads: 2",
                                            encoder="{plugin: vit, image_size: 8, patch: 4, width: 16, depth: 1, heads: 4, dropout: 0.1}")

    def path(self, name):
        return os.path.join(self.folder, name)

    def ok(self, *args):
        code, out, err = program.run(*args)
        self.assertEqual(code, 0, err)
        return out, err

    def train(self, run, ranks, *overrides):
        return self.ok("train", self.recipe, "--run", self.path(run), self.flag, str(ranks), *overrides)[1]

    def resume(self, run, ranks, *overrides):
        return self.ok("train", "--resume", self.path(run), self.flag, str(ranks), *overrides)[1]

    def fails(self, code, *needles, args):
        got, _, err = program.run(*args)
        self.assertEqual(got, code, err)
        shown = [line for line in err.splitlines() if line.strip() and not HEAD.match(line)]
        self.assertEqual(len(shown), 1, err)
        for needle in needles:
            self.assertIn(needle, err)

    def assert_close(self, run, reference, keys=("loss", "grad_norm", "lr", "tokens", "supervised")):
        got, wanted = metrics(self.path(run)), metrics(self.path(reference))
        self.assertEqual([line["step"] for line in got], [line["step"] for line in wanted], run)
        for a, b in zip(got, wanted):
            for key in keys:
                if key in b:
                    self.assertIn(key, a, run)
                    self.assertLessEqual(abs(a[key] - b[key]), 1e-9 * abs(b[key]), f"{run}, step {b['step']}: {key}")

    def assert_bytes_were_predicted(self, run, ranks):
        with open(os.path.join(self.path(run), "ranks.jsonl"), encoding="utf-8") as lines:
            first = json.loads(lines.readline())
        for component, of in first["components"].items():
            predicted = of["sent_predicted"]
            self.assertEqual(predicted.count(-1), 0 if ranks <= 8 else ranks - 1, run)
            self.assertEqual([sent for sent, known in zip(of["sent"], predicted) if known >= 0], [known for known in predicted if known >= 0],
                             f"{run}: {component}")

    # ---- what is trained
    def test_layouts_change_no_loss(self):
        evaluated = ("eval.every=6", "eval.samples=24", "eval.max_new_tokens=12")
        err = self.train("one", 1, *evaluated)
        self.assertIn("1 rank ", err)
        self.assertNotIn("layout", err)
        layouts = {
            "two": (2, []),
            "four": (4, []),
            "copies": (4, ["parallel.encoders.image.shard=1", "parallel.connectors.image.shard=1", "parallel.backbone.shard=1"]),
            "lanes": (2, ["parallel.backbone.sp=2"]),
            "mixed": (4, ["parallel.encoders.image={shard: 1, sp: 2}", "parallel.connectors.image.shard=2",
                          "parallel.backbone={sp: 2, shard: 2}"]),
            "long": (4, ["parallel.encoders.image={shard: 2, sp: 4}", "parallel.backbone={sp: 4, shard: 0}", "train.recompute=true"]),
            "ring": (2, ["parallel.backbone={sp: 2, attention: ring}", "parallel.encoders.image={sp: 2, attention: ring}"]),
            "mesh": (4, ["parallel.backbone={sp: 4, attention: mesh, mesh_queries: 2}", "train.recompute=true"]),
            "mesh_of_nine": (9, ["parallel.backbone={sp: 9, attention: mesh, mesh_queries: 3}"]),
            "measured": (4, ["parallel.backbone={sp: 4, attention: mesh, mesh_choice: measured}"]),
            "tensor": (2, ["parallel.backbone.tp=2", "parallel.encoders.image.tp=2", "parallel.connectors.image.tp=2"]),
            "tensor_rows": (4, ["parallel.backbone={tp: 2, sp: 2}", "parallel.encoders.image={tp: 2, sp: 2}", "train.recompute=true"]),
            "tensor_ring": (4, ["parallel.backbone={tp: 2, sp: 2, attention: ring}", "parallel.encoders.image.sp=2"]),
            "tensor_shards": (4, ["parallel.backbone={tp: 2, shard: 2}", "parallel.connectors.image={tp: 4}", "data.budget=24"]),
            "at_home": (4, ["parallel.balance={group: 2, move: false}", "parallel.encoders.image.sp=2", "parallel.backbone.sp=2"]),
            "small": (4, ["data.budget=24", "parallel.backbone.shard=2"]),
            "kept": (4, ["data.budget=24", "parallel.gather=step", "parallel.reduce=step", "parallel.backbone.shard=2"]),
        }
        for run, (ranks, overrides) in layouts.items():
            err = self.train(run, ranks, *evaluated, *overrides)
            self.assertIn(f"{ranks} ranks ({self.kind})", err)
            self.assertEqual(sum(line.startswith("layout ") for line in err.splitlines()), 3, err)
            if run == "measured":
                self.assertRegex(err, r"measured \d+ us a message, .*/s, attention .* operations/s")
                self.assertRegex(err, r"layout  *backbone .* sp 4 (ring|mesh of [24])")
            self.assert_close(run, "one", ("loss", "grad_norm", "lr", "tokens", "supervised", "eval_loss", "exact_match", "eval_samples"))
            self.assertTrue(all(line["bytes_sent"] > 0 for line in metrics(self.path(run))), run)
            self.assertTrue(all(line["imbalance/backbone"] >= 1 <= line["imbalance/encoders.image"] for line in metrics(self.path(run))), run)
            self.assert_bytes_were_predicted(run, ranks)
        self.assertIn("eval_loss", metrics(self.path("one"))[5])
        self.assertNotIn("bytes_sent", metrics(self.path("one"))[0])
        # Groups of two whose items stay lie less evenly than items that go anywhere.
        uneven, even = (sum(line["imbalance/encoders.image"] for line in metrics(self.path(run))) for run in ("at_home", "four"))
        self.assertGreater(uneven, even)

    def test_two_runs_are_equal_to_the_bit(self):
        for run in "ab":
            self.train(run, 4, "train.precision=fp32", "parallel.backbone={sp: 2, shard: 2}")
        self.assertEqual(program.losses(self.path("a")), program.losses(self.path("b")))

    # ---- leaving and coming back
    def test_resumes_under_another_number_of_ranks(self):
        everything = ("checkpoint.every=3", "checkpoint.keep=0")
        self.train("one", 1, *everything)
        self.train("four", 4, *everything, "parallel.backbone={sp: 2, shard: 2}", "parallel.encoders.image.shard=1")
        straight = program.losses(self.path("four"))
        kept_up_to(self.path("four"), 6)
        self.resume("four", 4)
        self.assertEqual(program.losses(self.path("four")), straight)  # the same layout: to the bit
        one_rank = ("parallel.backbone={sp: 1, shard: 0}", "parallel.encoders.image.shard=0")
        for ranks, step, layout in ((2, 9, one_rank), (1, 6, one_rank), (4, 3, (one_rank[0][:-1] + ", tp: 2}", one_rank[1]))):
            kept_up_to(self.path("four"), step)
            err = self.resume("four", ranks, *layout)
            self.assertIn(f"step-{step}", err)
            self.assert_close("four", "one")
        kept_up_to(self.path("one"), 6)
        self.resume("one", 4, "parallel.backbone.sp=4")
        self.assert_close("one", "four")

    def test_evaluates_on_one_rank_whatever_the_layout(self):
        self.train("run", 4, "parallel.backbone={sp: 4, shard: 2}", "parallel.encoders.image.sp=4")
        out, _ = self.ok("eval", self.path("run"))
        self.assertIn("step 12", out)
        self.ok("generate", self.path("run"), self.path("train-images.gz") + "#0")

    def test_interrupt_saves_and_resumes(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            run = self.path(str(code))
            process = subprocess.Popen([program.PROGRAM, "train", self.recipe, "--run", run, self.flag, "4",
                                        "train.steps=1000000", "checkpoint.every=0", "parallel.backbone.sp=2"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and not (os.path.exists(run + "/metrics.jsonl") and os.path.getsize(run + "/metrics.jsonl") > 0):
                time.sleep(0.02)
            process.send_signal(number)
            _, err = process.communicate(timeout=120)
            self.assertEqual(process.returncode, code, err)
            self.assertEqual(err.count("resume: omniloom train --resume"), 1, err)
            step = int(err.split("saved step ")[1].split()[0])
            self.assertTrue(os.path.isfile(f"{run}/checkpoints/step-{step}/manifest.json"))
            self.assertEqual(program.losses(run)[-1][0], step)
            self.resume(str(code), 2, f"train.steps={step + 2}")
            self.assertEqual([s for s, _ in program.losses(run)], list(range(1, step + 3)))

    def test_kill_leaves_a_run_that_resumes_to_the_bit(self):
        settings = ("train.steps=80", "checkpoint.every=1", "checkpoint.keep=2", "parallel.backbone.shard=1")
        self.train("straight", 2, *settings)
        rng = random.Random(4)
        arguments = ["train", self.recipe, "--run", self.path("killed"), self.flag, "2", *settings]
        kills = 0
        while kills < 5:
            process = subprocess.Popen([program.PROGRAM, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       env=dict(os.environ, OMP_NUM_THREADS="1"))
            time.sleep(0.4 + 0.3 * rng.random())
            ended = process.poll()
            if os.path.isfile(self.path("killed/recipe.resolved.yaml")):
                arguments = ["train", "--resume", self.path("killed"), self.flag, "2"]
            if ended is not None:
                self.assertEqual(ended, 0)
                break
            process.kill()
            process.wait()
            kills += 1
        self.ok(*arguments)
        self.assertEqual(program.losses(self.path("killed")), program.losses(self.path("straight")))
        self.assertGreater(kills, 0)

    # ---- mistakes
    def test_layouts_that_cannot_be(self):
        with open(self.recipe, encoding="utf-8") as text:
            body = text.read()

        def bad(section, ranks):
            with open(self.path("bad.yaml"), "w", encoding="utf-8") as out:
                out.write(f"{body}parallel:\n  {section}\n")
            return ("train", self.path("bad.yaml"), "--run", self.path("run"), self.flag, str(ranks))

        line = body.count("\n") + 2
        self.fails(2, f"bad.yaml:{line}:", "parallel.backbone.sp", "3", "the 4 ranks", "1, 2, 4", args=bad("backbone: {sp: 3}", 4))
        self.fails(2, f"bad.yaml:{line}:", "parallel.backbone.sp", "the 1 rank", args=bad("backbone: {sp: 2}", 1))
        self.fails(2, f"bad.yaml:{line}:", "parallel.encoders.image.shard", "the 4 ranks", args=bad("encoders.image: {shard: 8}", 4))
        self.fails(2, f"bad.yaml:{line}:", "parallel.connectors.image.shard", "the 2 ranks", args=bad("connectors.image: {shard: 3}", 2))
        self.fails(2, f"bad.yaml:{line}:", "parallel.backbone.sp", "8 ranks", "4 heads", "1, 2, 4", "attention: ring", args=bad("backbone: {sp: 8}", 8))
        self.fails(2, f"bad.yaml:{line}:", "parallel.backbone.sp", "4 ranks", "2 heads on each of 2 ranks (tp)", "expected one of 1, 2,",
                   args=bad("backbone: {sp: 4, tp: 2}", 8))
        self.fails(2, f"bad.yaml:{line}:", "parallel.encoders.image.sp", "4 heads", "1, 2, 3, 4", args=bad("encoders.image: {sp: 5}", 6))
        self.fails(2, f"bad.yaml:{line}:", "mesh_choice", "mesh_queries: 0", args=bad("backbone: {mesh_choice: measured}", 2))
        self.assertFalse(os.path.exists(self.path("run")))
        for section, needle in (("encoders.imag: {shard: 1}", "no component 'encoders.imag'; did you mean 'encoders.image'?"),
                                ("bacbone: {sp: 1}", "did you mean 'backbone'?"),
                                ("connectors.image: {sp: 2}", "parallel.connectors.image.sp: unknown key"),
                                ("backbone: {sp: 0}", "parallel.backbone.sp")):
            code, _, err = program.run(*bad(section, 2))
            self.assertEqual(code, 2, err)
            self.assertIn(f"bad.yaml:{line}:", err)
            self.assertIn(needle, err)
            self.assertEqual(len(err.splitlines()), 2, err)  # the mistake, and how many there are
        for ranks in ("0", "-2", "300"):
            self.fails(2, self.flag, args=("train", self.recipe, self.flag, ranks))

    def test_help_names_the_flag(self):
        out, _ = self.ok("train", "--help")
        self.assertIn(self.flag, out)

    def test_an_error_of_many_ranks_is_told_once(self):
        diverging = ("train", self.recipe, "--run", self.path("a"), self.flag, "4", "train.precision=fp32", "train.lr=1e3",
                     "train.weight_decay=1e3", "train.clip=0", "train.warmup=0")
        self.fails(2, "is not finite", "the step was not taken", args=diverging)
        self.fails(2, "budget", args=("train", self.recipe, "--run", self.path("b"), self.flag, "4", "data.budget=8"))
        self.fails(5, args=("train", self.recipe, "--run", self.path("recipe.yaml/run"), self.flag, "2"))

    def test_a_plugin_that_throws_on_every_rank(self):
        bad = os.environ["OMNILOOM_BAD_PLUGINS"]
        vit = "{plugin: vit, image_size: 8, patch: 4, width: 16, depth: 1, heads: 4, dropout: 0.1}"
        with open(self.recipe, encoding="utf-8") as text:
            body = text.read()
        self.assertIn(vit, body)
        with open(self.path("throws.yaml"), "w", encoding="utf-8") as out:
            out.write(body.replace(vit, "{plugin: throws_in_run}") + f"plugins: [\"{bad}/libthrows_in_run.omniloom.so\"]\n")
        self.fails(3, "throws_in_run", "encoders.image",
                   args=("train", self.path("throws.yaml"), "--run", self.path("run"), self.flag, "4"))


class Loopback(Ranks, unittest.TestCase):
    flag, kind = "--loopback", "loopback"

    def test_two_hundred_steps_with_dropout_are_those_of_one_rank(self):
        self.recipe = program.write_recipe(self.folder, heads="heads: 4, kv_heads: 2")
        settings = ("train.steps=200", "checkpoint.every=0")
        layouts = {
            "tensor": (2, ["parallel.backbone.tp=2", "parallel.encoders.image.tp=2"]),
            "ring": (2, ["parallel.backbone={sp: 2, attention: ring}"]),
            "tensor_rows": (4, ["parallel.backbone={tp: 2, sp: 2}", "parallel.encoders.image={tp: 2, sp: 2, attention: ring}"]),
            "mesh": (4, ["parallel.backbone={sp: 4, attention: mesh, mesh_queries: 2}", "parallel.encoders.image={sp: 4, attention: ring}"]),
        }
        for precision, most in (("fp64", 1e-10), ("fp32", 2e-5)):
            self.train("one" + precision, 1, *settings, f"train.precision={precision}")
            wanted = [line["loss"] for line in metrics(self.path("one" + precision))]
            self.assertEqual(len(wanted), 200)
            self.assertLess(wanted[-1], 0.1 * wanted[0])  # it learns, so differences had every chance to grow
            for run, (ranks, overrides) in layouts.items():
                self.train(run + precision, ranks, *settings, f"train.precision={precision}", *overrides)
                got = [line["loss"] for line in metrics(self.path(run + precision))]
                worst = max(abs(a - b) for a, b in zip(got, wanted))
                print(f"{precision} {run}: {worst:.2g}")
                self.assertLessEqual(worst, most, f"{run} {precision}")


if __name__ == "__main__":
    unittest.main()
