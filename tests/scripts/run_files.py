"""What a run leaves for people: report.html while it goes on, after it, after Ctrl-C, after a failure and after kill -9; samples.jsonl; the head."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import program  # noqa: E402


def page_of(run):
    with open(os.path.join(run, "report.html"), encoding="utf-8") as page:
        return page.read()


def state_of(run):
    return re.search(r'<html lang="en" data-state="(\w+)">', page_of(run)).group(1)


def samples_of(run):
    with open(os.path.join(run, "samples.jsonl"), encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


class RunFiles(unittest.TestCase):
    def setUp(self):
        self.folder = program.temp_folder()
        self.addCleanup(self.folder.cleanup)
        self.run_folder = os.path.join(self.folder.name, "runs", "a b")

    def recipe(self, every=4, **options):
        path = program.write_recipe(self.folder.name, **options)
        with open(path, "a", encoding="utf-8") as out:
            out.write(f"eval: {{every: {every}, samples: 20, max_new_tokens: 8}}\n")
        return path

    def start(self, *args):
        process = subprocess.Popen([program.PROGRAM, "train", *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   env=dict(os.environ, OMP_NUM_THREADS="1"))
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def wait_for(self, process, condition, what):
        limit = time.monotonic() + 120
        while time.monotonic() < limit:
            self.assertIsNone(process.poll(), f"the run ended before {what}")
            if condition():
                return
            time.sleep(0.01)
        self.fail(f"two minutes without {what}")

    def test_a_whole_run(self):
        code, _, err = program.run("train", self.recipe(), "--run", self.run_folder)
        self.assertEqual(code, 0, err)
        head = err.splitlines()
        self.assertRegex(head[0], r"^omniloom [\d.]+ · 1 rank · cpu, 1 thread, fp32( \(no native bf16\))?$")
        self.assertRegex(head[1], r"^model   image vit .* trainable$")
        self.assertRegex(head[2], r"^data    96 samples in 1 source · budget 128 · packed [\d.]+ % full$")
        self.assertEqual(head[3], f"run     {self.run_folder} · TensorBoard: tensorboard --logdir {os.path.dirname(self.run_folder)}")
        self.assertRegex(err, r"(?m)^peak    [\d.]+ [GT]FLOP/s measured, matrix products in fp32$")
        with open(os.path.join(self.run_folder, "metrics.jsonl"), encoding="utf-8") as lines:
            steps = [json.loads(line) for line in lines]
        self.assertGreater(steps[0]["startup_seconds"], 0)
        self.assertNotIn("startup_seconds", steps[1])
        fill = float(re.search(r"packed ([\d.]+) %", head[2]).group(1))
        self.assertAlmostEqual(100 * steps[0]["packed_fill"], fill, delta=0.06)
        for step in steps:
            self.assertAlmostEqual(step["packed_fill"], step["tokens"] / (step["microbatches"] * 128), delta=1e-12)
            self.assertEqual((step["skipped"], step["left_out"]), (0, 0))
            self.assertGreaterEqual(step["rss_peak"], step["rss"])
            self.assertGreater(step["rss"], 10_000_000)
            self.assertEqual("token_accuracy" in step, step["step"] % 4 == 0)

        page = page_of(self.run_folder)
        self.assertEqual(state_of(self.run_folder), "finished")
        for text in ("Finished · 12 steps", "Exact match", "Right tokens", "Loss per supervised token", "Held-out answers", "Memory",
                     "Microbatches filled", "What ran where", "encoders.image", "connectors.image", "backbone", ">Recipe<"):
            self.assertIn(text, page)
        self.assertEqual(page.count("<img "), 12)
        self.assertNotIn("Skipped samples", page)
        self.assertNotRegex(page, r"(https?:|src=\"(?!data:)|@import|url\()")

        answers = samples_of(self.run_folder)
        self.assertEqual([answer["step"] for answer in answers], [4] * 12 + [8] * 12 + [12] * 12)
        self.assertEqual(["picture" in answer for answer in answers], [True] * 12 + [False] * 24)
        for answer in answers:
            self.assertEqual(answer["correct"], answer["output"] == answer["truth"])

        code, out, err = program.run("eval", self.run_folder, "--report", "--show", "20")
        self.assertEqual(code, 0, err)
        self.assertIn("report", out)
        self.assertEqual(page_of(self.run_folder).count("<img "), 20)
        self.assertIn("96 held-out samples, step 12", page_of(self.run_folder))
        self.assertEqual(samples_of(self.run_folder), answers, "eval writes into the run's own log")

    def test_while_it_goes_on_after_ctrl_c_and_resumed(self):
        process = self.start(self.recipe(steps=100000, checkpoint="{every: 0}"), "--run", self.run_folder)
        report = os.path.join(self.run_folder, "report.html")
        self.wait_for(process, lambda: os.path.exists(report), "a report")
        self.assertEqual(state_of(self.run_folder), "running")
        self.assertRegex(page_of(self.run_folder), r"Running · step \d+ of 100,000")
        process.send_signal(signal.SIGINT)
        err = process.stderr.read()
        self.assertEqual(process.wait(), 130)
        self.assertEqual(state_of(self.run_folder), "interrupted")
        saved = int(re.search(r"saved step (\d+) ·", err).group(1))
        self.assertIn(f"Interrupted · step {saved:,} of 100,000", page_of(self.run_folder))
        before = samples_of(self.run_folder)

        # Up to the next evaluation but one.
        steps = saved // 4 * 4 + 8
        code, _, err = program.run("train", "--resume", self.run_folder, f"train.steps={steps}")
        self.assertEqual(code, 0, err)
        self.assertEqual(state_of(self.run_folder), "finished")
        after = samples_of(self.run_folder)
        self.assertEqual(after[: len(before)], before)
        # The step at which it was stopped may have been due for an evaluation, which Ctrl-C does not wait for.
        evaluated = {answer["step"] for answer in after} | ({saved} if saved % 4 == 0 else set())
        self.assertEqual(sorted(evaluated), list(range(4, steps + 1, 4)))
        self.assertEqual(page_of(self.run_folder).count("<img "), 12, "pictures of the time before the resume")
        self.assertEqual([step for step, _ in program.losses(self.run_folder)], list(range(1, steps + 1)))

    def test_killed(self):
        process = self.start(self.recipe(steps=100000, checkpoint="{every: 5, keep: 2}"), "--run", self.run_folder)
        report = os.path.join(self.run_folder, "report.html")
        self.wait_for(process, lambda: os.path.exists(report) and os.path.exists(os.path.join(self.run_folder, "checkpoints", "step-10")),
                      "a report and a checkpoint")
        process.kill()
        process.wait()
        self.assertTrue(page_of(self.run_folder).rstrip().endswith("</html>"))
        with open(os.path.join(self.run_folder, "samples.jsonl"), "a", encoding="utf-8") as out:
            out.write('{"step":99999,"name":"eval.0#0","output":"later"}\n{"step":4,"na')
        code, _, err = program.run("train", "--resume", self.run_folder, f"train.steps={len(program.losses(self.run_folder)) + 2}")
        self.assertEqual(code, 0, err)
        self.assertEqual(state_of(self.run_folder), "finished")
        self.assertNotIn("later", {answer["output"] for answer in samples_of(self.run_folder)})

    def test_without_evaluation(self):
        code, _, err = program.run("train", self.recipe(every=0), "--run", self.run_folder)
        self.assertEqual(code, 0, err)
        page = page_of(self.run_folder)
        self.assertEqual(state_of(self.run_folder), "finished")
        self.assertIn("Training loss", page)
        self.assertNotIn("<h2>Samples", page)
        self.assertFalse(os.path.exists(os.path.join(self.run_folder, "samples.jsonl")))

    def test_a_run_that_fails(self):
        # A learning rate that no model survives: the run stops at the first number that is not finite.
        recipe = self.recipe(every=0, steps=400)
        code, _, err = program.run("train", recipe, "--run", self.run_folder, "train.lr=1000", "train.clip=0", "train.warmup=0")
        self.assertEqual(code, 2, err)
        self.assertEqual(state_of(self.run_folder), "failed")
        self.assertIn('<p class="note">', page_of(self.run_folder))
        self.assertIn("not finite", re.search(r'<p class="note">(.*)</p>', page_of(self.run_folder)).group(1))

    def test_several_ranks(self):
        code, _, err = program.run("train", self.recipe(), "--run", self.run_folder, "--loopback", "2")
        self.assertEqual(code, 0, err)
        self.assertRegex(err.splitlines()[0], r"^omniloom [\d.]+ · 2 ranks \(loopback\) · cpu, 1 thread each, fp32( \(no native bf16\))?$")
        self.assertEqual(state_of(self.run_folder), "finished")
        self.assertIn("2 lanes", page_of(self.run_folder))
        self.assertEqual(len([name for name in os.listdir(self.run_folder) if "tfevents" in name]), 1)


if __name__ == "__main__":
    unittest.main()
