"""Where a run computes: train.device, what is said when it cannot be had, and that cuda-check skips without a compiler."""

import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import program  # noqa: E402

SOURCE = os.environ["OMNILOOM_SOURCE"]


def gpu_support():
    """What `omniloom env` says of GPUs: "not built in", "CUDA 13.0 built in, no GPU here", ..."""
    code, out, err = program.run("env", "--quick")
    assert code == 0, err
    return next(line[len("cuda"):].strip() for line in out.splitlines() if line.startswith("cuda "))


class Devices(unittest.TestCase):
    def setUp(self):
        temp = program.temp_folder()
        self.addCleanup(temp.cleanup)
        self.folder = temp.name
        self.recipe = program.write_recipe(self.folder, steps=2)

    def train(self, *flags):
        return program.run("train", self.recipe, "--run", os.path.join(self.folder, "run"), "--replace", *flags)

    def refuses(self, flags, *needles):
        code, _, err = self.train(*flags)
        self.assertEqual(code, 2, err)
        self.assertEqual(len(err.strip().splitlines()), 1, err)
        for needle in needles:
            self.assertIn(needle, err)

    def test_no_gpu(self):
        support = gpu_support()
        if support == "not built in":
            self.refuses(["train.device=cuda"], "train.device", "'cuda'", "built without CUDA", "expected auto or cpu")
            self.refuses(["train.device=cuda:3"], "'cuda:3'", "built without CUDA")
        elif support.endswith("no GPU here"):
            self.refuses(["train.device=cuda"], "train.device", "no GPU answers", "CUDA", "expected auto or cpu")
        else:
            self.refuses(["train.device=cuda:99"], "train.device", "the last GPU here is cuda:")

    def test_unknown_device(self):
        for name in ("gpu", "cuda:", "cuda:-1", "cuda:x", "CPU"):
            self.refuses(["train.device=" + name], "train.device", "expected auto, cpu, cuda or cuda:N", f"'{name}'")
        code, _, err = program.run("check", self.recipe, "train.device=gpu")
        self.assertEqual(code, 2, err)
        self.assertIn("expected auto, cpu, cuda or cuda:N", err)

    def test_the_cpu_is_named(self):
        code, _, err = self.train("train.device=cpu")
        self.assertEqual(code, 0, err)
        self.assertIn("1 rank · cpu, 1 thread", err)

    def test_threads_that_are_ranks_have_no_gpu(self):
        code, _, err = self.train("--loopback", "2", "train.device=auto")
        self.assertEqual(code, 0, err)
        code, _, err = self.train("--loopback", "2", "train.device=cuda")
        self.assertEqual(code, 2, err)
        self.assertIn("train.device", err)

    def test_cuda_check_skips_without_nvcc(self):
        script = os.path.join(SOURCE, "core", "cmake", "cuda_check.sh")
        # The few programs that the script needs before it looks for nvcc, and nothing else.
        tools = os.path.join(self.folder, "bin")
        os.mkdir(tools)
        for name in ("dirname", "ls"):
            os.symlink(subprocess.check_output(["/bin/sh", "-c", "command -v " + name], text=True).strip(), os.path.join(tools, name))
        environment = {"PATH": tools, "OMNILOOM_NVCC_FOLDER": self.folder}
        done = subprocess.run(["/bin/bash", script], env=environment, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("SKIPPED: no nvcc", done.stdout)


if __name__ == "__main__":
    unittest.main()
