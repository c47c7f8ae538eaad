"""kill -9 at random instants, then resume: the loss series is bit for bit that of the uninterrupted run, whatever the instant.

Half of the kills aim at a moment when a checkpoint is being written (its temporary folder exists)."""

import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import program  # noqa: E402

STEPS = 400 if os.environ.get("OMNILOOM_TEST_FULL") else 200
KILLS = 20


def writing(run):
    try:
        return any(".tmp" in name for name in os.listdir(os.path.join(run, "checkpoints")))
    except FileNotFoundError:
        return False


def start(args):
    return subprocess.Popen([program.PROGRAM, *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            env=dict(os.environ, OMP_NUM_THREADS="1"))


def kill_once(run, process, rng, aim_at_writing):
    """Kills after a random while, or as soon as a save is seen; True when a save was under way."""
    begin = time.monotonic()
    patience = 0.35 + rng.random() * 0.9
    while process.poll() is None:
        if aim_at_writing and time.monotonic() - begin > patience and writing(run):
            break
        if not aim_at_writing and time.monotonic() - begin > patience:
            break
        time.sleep(0.0002 if aim_at_writing else 0.003)
    during = writing(run)
    alive = process.poll() is None
    if alive:
        process.send_signal(signal.SIGKILL)
    process.wait()
    return alive, during


def main():
    rng = random.Random(20)
    with program.temp_folder() as folder:
        recipe = program.write_recipe(folder, steps=STEPS, checkpoint="{every: 1, keep: 2}")
        straight, killed = os.path.join(folder, "straight"), os.path.join(folder, "killed")
        code, _, err = program.run("train", recipe, "--run", straight)
        assert code == 0, err
        wanted = program.losses(straight)
        assert [step for step, _ in wanted] == list(range(1, STEPS + 1))

        kills = in_writing = rounds = 0
        arguments = ["train", recipe, "--run", killed]
        while kills < KILLS:
            rounds += 1
            assert rounds < 200, f"only {kills} kills landed in {rounds} starts"
            process = start(arguments)
            alive, during = kill_once(killed, process, rng, aim_at_writing=kills % 2 == 1)
            if os.path.isfile(os.path.join(killed, "recipe.resolved.yaml")):
                arguments = ["train", "--resume", killed]
            if not alive:
                error = process.stderr.read().decode()
                assert process.returncode == 0, error
                # It finished before the kill: start over, so that the next kills hit a run that is under way.
                assert program.losses(killed) == wanted
                arguments = ["train", recipe, "--run", killed, "--replace"]
                continue
            kills += 1
            in_writing += during
        code, _, err = program.run(*arguments)
        assert code == 0, err
        assert program.losses(killed) == wanted, "the loss series differs from the uninterrupted run"
        assert in_writing >= 3, f"only {in_writing} kills fell into a save"
        print(f"{kills} kills, {in_writing} of them while a checkpoint was being written; {STEPS} losses equal to the bit")


main()
