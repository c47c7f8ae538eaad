"""What goes wrong for users ends in one clear line and the exit code of its kind; nothing already saved is lost."""

import gzip
import os
import signal
import struct
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import program  # noqa: E402


class BadInput(unittest.TestCase):
    def setUp(self):
        temp = program.temp_folder()
        self.addCleanup(temp.cleanup)  # runs after later clean-ups: a mount inside is gone by then
        self.folder = temp.name
        self.recipe = program.write_recipe(self.folder, steps=4)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, text, name="bad.yaml"):
        with open(self.path(name), "w", encoding="utf-8") as out:
            out.write(text)
        return self.path(name)

    def changed(self, old, new):
        with open(self.recipe, encoding="utf-8") as text:
            before = text.read()
        self.assertIn(old, before)
        return self.write(before.replace(old, new))

    def fails(self, code, *needles, args=None, recipe=None, lines=1, env=None):
        args = args or ("train", recipe or self.recipe, "--run", self.path("run"))
        got, _, err = program.run(*args, env=env)
        self.assertEqual(got, code, err)
        shown = [line for line in err.splitlines() if line.strip() and not line.startswith(("omniloom 0", "model  ", "data  ", "run  ", "eval  "))]
        self.assertEqual(len(shown), lines, err)
        for needle in needles:
            self.assertIn(needle, err)
        return err

    def trained(self):
        code, _, err = program.run("train", self.recipe, "--run", self.path("run"))
        self.assertEqual(code, 0, err)
        return self.path("run")

    # ---- recipes
    def test_empty_recipe(self):
        self.fails(2, "bad.yaml", "empty", recipe=self.write(""))

    def test_tabs(self):
        self.fails(2, "bad.yaml:2", "tab", recipe=self.write("name: x\n\tmodel: y\n"))

    def test_duplicate_key(self):
        self.fails(2, "bad.yaml:10", "train.lr: given twice; first at line 10", recipe=self.changed("lr: 1e-2,", "lr: 1e-2, lr: 1e-3,"), lines=2)

    def test_missing_recipe(self):
        self.fails(2, "nowhere.yaml", recipe=self.path("nowhere.yaml"))

    def test_all_mistakes_at_once(self):
        recipe = self.changed("kv_heads: 1", "kv_head: 1")
        with open(recipe, encoding="utf-8") as text:
            body = text.read().replace("lr: 1e-2", "lr: fast").replace("plugin: vit,", "plugin: vitt,")
        err = self.fails(2, "model.backbone.kv_head: unknown key; did you mean 'kv_heads'?", "train.lr: expected a number from 0 to 1000, found 'fast'",
                         "no encoder 'vitt'; did you mean 'vit'?", "3 mistakes in", "nothing was started", recipe=self.write(body), lines=4)
        positions = [int(line.split(":")[1]) for line in err.splitlines()[:3]]
        self.assertEqual(positions, sorted(positions))

    def test_unknown_override(self):
        self.fails(2, "command line", "train.learning_rate", args=("check", self.recipe, "train.learning_rate=1"), lines=2)

    def test_encoders_and_sources_that_do_not_meet(self):
        vit = "{plugin: vit, image_size: 8, patch: 4, width: 16, depth: 1, heads: 2, dropout: 0.1}"
        with open(self.recipe, encoding="utf-8") as text:
            body = text.read()
        two = body.replace("encoders: {image:", "encoders: {photo: " + vit + ", image:").replace(
            "connectors: {image:", "connectors: {photo: {plugin: mlp, hidden: 8}, image:")
        self.fails(2, "bad.yaml:3:14: model.encoders.photo: nothing feeds it: the sources of data.train give image; add one with modality: photo, or "
                   "leave out the encoder and its connector", recipe=self.write(two), lines=2)
        fed = two.replace("data:\n", "data:\n  hold_out: 0.1\n", 1).split("  eval: [")[0] + two[two.index("train: {steps"):]
        source = fed[fed.index("train: [{") + 8 : fed.index("}]") + 1]
        fed = fed.replace("train: [" + source, "train: [" + source + ", " + source[:-1] + ", modality: photo}")
        code, out, err = program.run("check", self.write(fed))
        self.assertEqual(code, 0, err)
        err = self.fails(2, "modality: no encoder 'phto'; did you mean 'photo'? (there is: photo, image)", "data.train.1.modality", "bad.yaml:9:",
                         "model.encoders.photo: nothing feeds it: the sources of data.train give image, phto;",
                         recipe=self.write(fed.replace("modality: photo", "modality: phto")), lines=3)

    # ---- data
    def test_missing_data_file(self):
        self.fails(2, "gone.gz", "bad.yaml:", recipe=self.changed("train-images.gz", "gone.gz"))

    def test_truncated_idx(self):
        with gzip.open(self.path("train-images.gz"), "rb") as whole:
            body = whole.read()
        with gzip.open(self.path("train-images.gz"), "wb") as out:
            out.write(body[: len(body) // 2])
        self.fails(2, "train-images.gz")

    def test_truncated_gzip(self):
        with open(self.path("train-images.gz"), "rb") as whole:
            body = whole.read()
        with open(self.path("train-images.gz"), "wb") as out:
            out.write(body[: len(body) // 2])
        self.fails(2, "train-images.gz")

    def test_wrong_magic(self):
        with gzip.open(self.path("train-images.gz"), "wb") as out:
            out.write(struct.pack(">IIII", 0x999, 1, 8, 8) + bytes(64))
        self.fails(2, "train-images.gz", "magic")

    def test_sample_longer_than_the_budget(self):
        self.fails(2, "budget", args=("train", self.recipe, "--run", self.path("run"), "data.budget=8"))

    def test_item_longer_than_a_rank_may_hold(self):
        self.fails(2, "its item 1 has 4 image rows, cannot be divided here; a rank may hold 3 of one item; raise parallel.encoders.image.most_rows",
                   args=("train", self.recipe, "--run", self.path("run"), "parallel.encoders.image.most_rows=3"))

    def test_all_samples_dropped(self):
        err = self.fails(2, args=("train", self.recipe, "--run", self.path("run"), "data.budget=8", "data.over_long=drop"))
        self.assertIn("budget", err)

    def test_label_without_a_name(self):
        self.fails(2, "train-labels.gz", recipe=self.changed("names: [circle, square, cross, bar], caption: \"a {name}\"}]\n  eval",
                                                              "names: [circle], caption: \"a {name}\"}]\n  eval"))

    # ---- runs and checkpoints
    def test_run_exists(self):
        self.trained()
        self.fails(2, "holds a run", "--replace")

    def test_folder_with_other_files_is_not_replaced(self):
        os.makedirs(self.path("run"))
        with open(self.path("run/thesis.txt"), "w", encoding="utf-8") as out:
            out.write("years of work")
        self.fails(2, "not empty", args=("train", self.recipe, "--run", self.path("run"), "--replace"))
        self.assertTrue(os.path.exists(self.path("run/thesis.txt")))

    def test_truncated_checkpoint_falls_back(self):
        run = self.trained()
        code, _, err = program.run("train", "--resume", run, "train.steps=8", "checkpoint.keep=0")
        self.assertEqual(code, 0, err)
        newest = self.path("run/checkpoints/step-8/rank-00000.safetensors")
        with open(newest, "r+b") as file:
            file.truncate(os.path.getsize(newest) // 2)
        code, _, err = program.run("train", "--resume", run)
        self.assertEqual(code, 0, err)
        self.assertIn("step-8", err)
        self.assertEqual([step for step, _ in program.losses(run)], list(range(1, 9)))

    def test_only_checkpoint_truncated(self):
        run = self.trained()
        for name in os.listdir(self.path("run/checkpoints")):
            with open(self.path(f"run/checkpoints/{name}/rank-00000.safetensors"), "r+b") as file:
                file.truncate(100)
        code, _, err = program.run("eval", run)
        self.assertEqual(code, 2, err)
        self.assertIn("no complete checkpoint", err)

    def test_no_run_there(self):
        self.fails(2, "holds no run", args=("eval", self.folder))

    def test_path_that_cannot_be_created(self):
        self.write("", "file")
        self.fails(5, self.path("file"), args=("train", self.recipe, "--run", self.path("file/run")))

    def test_read_only_mount(self):
        self.mounted("ro,size=1m")
        self.fails(5, self.path("mount"), args=("train", self.recipe, "--run", self.path("mount/run")))

    def test_full_disk_while_saving(self):
        self.mounted("size=300k")
        code, _, err = program.run("train", self.recipe, "--run", self.path("mount/run"), "train.steps=4000",
                                   "checkpoint.every=1", "checkpoint.keep=0")
        self.assertEqual(code, 5, err)
        self.assertIn("disk full", err)
        for name in os.listdir(self.path("mount/run/checkpoints")):
            if ".tmp" not in name:
                break
        else:
            self.fail("no checkpoint was saved before the disk was full")
        code, _, err = program.run("eval", self.path("mount/run"))
        self.assertEqual(code, 0, err)

    def mounted(self, options):
        os.makedirs(self.path("mount"))
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", self.path("mount")], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            self.skipTest(f"mounting a tmpfs is not allowed here: {done.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", self.path("mount")], check=False)

    # ---- plugins
    def test_plugin_that_throws_in_run(self):
        bad = os.environ["OMNILOOM_BAD_PLUGINS"]
        recipe = self.changed("{plugin: vit, image_size: 8, patch: 4, width: 16, depth: 1, heads: 2, dropout: 0.1}", "{plugin: throws_in_run}")
        with open(recipe, encoding="utf-8") as text:
            body = text.read() + f"plugins: [\"{bad}/libthrows_in_run.omniloom.so\"]\n"
        self.fails(3, "throws_in_run", "encoders.image", recipe=self.write(body))

    def test_plugin_by_path(self):
        vit = "{plugin: vit, image_size: 8, patch: 4, width: 16, depth: 1, heads: 2, dropout: 0.1}"
        beside = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(program.PROGRAM))), "lib", "omniloom", "plugins")
        code, _, err = program.run("check", self.changed("plugin: vit", f"plugin: {beside}/libvit.omniloom.so"))
        self.assertEqual(code, 0, err)
        wrong = self.changed(vit, f"{{plugin: {beside}/libllama.omniloom.so}}")
        self.fails(2, "bad.yaml:3", "provides backbone:llama, no encoder", recipe=wrong, lines=2)

    # ---- signals
    def interrupted(self, signals):
        process = subprocess.Popen([program.PROGRAM, "train", self.recipe, "--run", self.path("run"), "train.steps=1000000",
                                    "checkpoint.every=0"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        metrics = self.path("run/metrics.jsonl")
        while time.monotonic() < deadline and not (os.path.exists(metrics) and os.path.getsize(metrics) > 0):
            time.sleep(0.02)
        for number in signals:
            process.send_signal(number)
            time.sleep(0.001)
        _, err = process.communicate(timeout=60)
        return process.returncode, err

    def test_interrupt_saves(self):
        code, err = self.interrupted([signal.SIGINT])
        self.assertEqual(code, 130, err)
        self.assertIn("resume: omniloom train --resume", err)
        step = int(err.split("saved step ")[1].split()[0])
        self.assertTrue(os.path.isfile(self.path(f"run/checkpoints/step-{step}/manifest.json")))
        self.assertEqual(program.losses(self.path("run"))[-1][0], step)

    def test_terminate_saves(self):
        code, err = self.interrupted([signal.SIGTERM])
        self.assertEqual(code, 143, err)
        self.assertIn("resume: omniloom train --resume", err)

    def test_second_interrupt_leaves_at_once(self):
        code, _ = self.interrupted([signal.SIGINT, signal.SIGINT])
        self.assertIn(code, (130, -signal.SIGINT))

    def test_command_line(self):
        self.fails(2, "omniloom --help", args=("trian",))
        self.fails(2, args=("train",))


if __name__ == "__main__":
    unittest.main()
