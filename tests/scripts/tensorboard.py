"""Event files as TensorBoard reads them (PyPI package `tensorboard`): every number of metrics.jsonl, the texts and pictures; after kill -9,
a torn file and a resume nothing is shown twice and nothing of steps that were taken back."""

import glob
import json
import math
import os
import signal
import struct
import subprocess
import sys
import time
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != FOLDER]  # this file has the package's name
try:
    from tensorboard.backend.event_processing import event_accumulator
except ImportError as error:
    sys.exit(f"tensorboard.py: {error.name} is missing; run it with a Python that has tensorboard (OMNILOOM_TEST_PYTHON)")
sys.path.insert(0, FOLDER)
import program  # noqa: E402

GROUPS = {"data_seconds": "train/data_wait", "exact_match": "eval/exact_match", "token_accuracy": "eval/token_accuracy", "rss": "memory/rss",
          "rss_peak": "memory/rss_peak", "tensor_peak": "memory/tensor_peak", "skipped": "data/skipped", "left_out": "data/left_out", "packed_fill": "data/packed_fill"}


def tag_of(name):
    if name.startswith("time/"):
        return name
    return GROUPS.get(name) or ("eval/" + name[5:] if name.startswith("eval_") else "train/" + name)


def float32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def metrics(run):
    """Per tag the list of (step, float32 value), as metrics.jsonl has them."""
    out = {}
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            for name, value in line.items():
                if name != "step":
                    out.setdefault(tag_of(name), []).append((line["step"], float32(float(value))))
    return out


def read(run):
    everything = {event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0, event_accumulator.IMAGES: 0}
    events = event_accumulator.EventAccumulator(run, size_guidance=everything)
    events.Reload()
    return events


def scalars(events):
    return {tag: [(item.step, item.value) for item in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def texts(events, tag):
    return [(item.step, item.tensor_proto.string_val[0].decode()) for item in events.Tensors(tag)]


def eval_text(every):
    return f"eval: {{every: {every}, samples: 20, max_new_tokens: 8}}\n"


class TensorBoard(unittest.TestCase):
    def same(self, run, events):
        wanted, shown = metrics(run), scalars(events)
        self.assertEqual(sorted(shown), sorted(wanted))
        for tag, points in wanted.items():
            self.assertEqual(shown[tag], points, tag)

    def recipe(self, folder, every, **options):
        path = program.write_recipe(folder, **options)
        with open(path, "a", encoding="utf-8") as out:
            out.write(eval_text(every))
        return path

    def test_every_number_of_a_run(self):
        with program.temp_folder() as folder:
            run = os.path.join(folder, "runs", "a")
            begin = time.time()
            code, _, err = program.run("train", self.recipe(folder, 5), "--run", run)
            self.assertEqual(code, 0, err)
            self.assertIn(f"tensorboard --logdir {os.path.dirname(run)}\n", err)
            events = read(run)
            self.same(run, events)
            shown = scalars(events)
            self.assertEqual([step for step, _ in shown["train/loss"]], list(range(1, 13)))
            self.assertEqual([step for step, _ in shown["eval/exact_match"]], [5, 10])
            for tag in ("train/lr", "train/grad_norm", "train/tokens_per_second", "train/data_wait", "eval/loss", "eval/token_accuracy",
                        "memory/rss", "data/packed_fill"):
                self.assertIn(tag, shown)
            self.assertTrue(all(math.isfinite(value) for points in shown.values() for _, value in points))
            times = [item.wall_time for item in events.Scalars("train/loss")]
            self.assertEqual(times, sorted(times))
            self.assertTrue(begin - 1 <= times[0] <= times[-1] <= time.time() + 1)

            self.assertIn("trainable", texts(events, "model")[0][1])
            step, recipe = texts(events, "recipe")[0]
            self.assertEqual(step, 0)
            with open(os.path.join(run, "recipe.resolved.yaml"), encoding="utf-8") as resolved:
                self.assertEqual([line[4:] for line in recipe.splitlines()], resolved.read().splitlines() + [""])
            self.assertEqual([step for step, _ in texts(events, "samples")], [5, 10])
            for tag in ("model", "recipe", "samples"):
                self.assertEqual(events.SummaryMetadata(tag).plugin_data.plugin_name, "text")
            self.assertEqual(events.Tags()["images"], [f"samples/{n}" for n in range(1, 13)])
            picture = events.Images("samples/1")
            self.assertEqual([(item.step, item.width, item.height) for item in picture], [(5, 8, 8)])
            self.assertEqual(picture[0].encoded_image_string[:8], b"\x89PNG\r\n\x1a\n")

    def test_kill_and_resume(self):
        with program.temp_folder() as folder:
            run = os.path.join(folder, "a")
            recipe = self.recipe(folder, 7, steps=4000, checkpoint="{every: 10, keep: 2}")
            process = subprocess.Popen([program.PROGRAM, "train", recipe, "--run", run], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       env=dict(os.environ, OMP_NUM_THREADS="1"))
            try:
                self.wait_for_steps(run, process, 26)
            finally:
                process.send_signal(signal.SIGKILL)
                process.wait()
            lost = len(program.losses(run))
            old = glob.glob(os.path.join(run, "events.out.tfevents.*"))
            self.assertEqual(len(old), 1)
            os.truncate(old[0], os.path.getsize(old[0]) - 5)  # a write that the kill tore
            saved = max(int(name[5:]) for name in os.listdir(os.path.join(run, "checkpoints")) if name[5:].isdigit())
            self.assertLess(saved, lost, "the kill came right after a save; nothing is taken back")
            self.assertGreater(saved, 0)

            # Fewer steps than were lost: what the killed run said of later ones must not stay.
            code, _, err = program.run("train", "--resume", run, f"train.steps={saved + 1}")
            self.assertEqual(code, 0, err)
            self.assertEqual(len(glob.glob(os.path.join(run, "events.out.tfevents.*"))), 2)
            events = read(run)
            self.same(run, events)
            self.assertEqual([step for step, _ in scalars(events)["train/loss"]], list(range(1, saved + 2)))
            self.assertEqual([step for step, _ in texts(events, "recipe")], [0, saved])

            code, _, err = program.run("train", "--resume", run, f"train.steps={lost + 10}")
            self.assertEqual(code, 0, err)
            events = read(run)
            self.same(run, events)
            self.assertEqual([step for step, _ in scalars(events)["train/loss"]], list(range(1, lost + 11)))

    def wait_for_steps(self, run, process, steps):
        limit = time.monotonic() + 120
        while time.monotonic() < limit:
            self.assertIsNone(process.poll(), "the run ended by itself")
            try:
                # Not where a save is next: the kill must cost steps.
                done = len(program.losses(run))
                if done >= steps and done % 10 in range(3, 7):
                    return
            except (FileNotFoundError, json.JSONDecodeError):
                pass
            time.sleep(0.001)
        self.fail(f"{steps} steps took more than two minutes")


if __name__ == "__main__":
    unittest.main()
