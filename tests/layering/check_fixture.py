#!/usr/bin/env python3
"""The checker must find exactly the faults of the fixture tree, and none once they are gone.

A checker that is only ever seen to pass proves nothing. The fixture is copied to a temporary folder, where files that
are too long are added to it (nobody wants to read them here).
"""
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def run(root):
    result = subprocess.run([sys.executable, os.path.join(HERE, "check_includes.py"), "--root", root],
                            capture_output=True, text=True, check=False)
    return result.returncode, (result.stdout + result.stderr).splitlines()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def remove_faults(root, lines):
    """Takes out the lines that were named, last ones first."""
    named = {(path, int(number)) for path, number, _ in (line.split(":", 2) for line in lines[:-1])}
    for path, number in sorted(named, reverse=True):
        whole = os.path.join(root, path)
        if os.path.isdir(whole):
            shutil.rmtree(whole)
        elif not os.path.exists(whole):
            write(whole, "Now it is here.\n")
        else:
            with open(whole, encoding="utf-8") as file:
                kept = file.read().splitlines(keepends=True)
            del kept[number - 1]
            write(whole, "".join(kept))


def main():
    with open(os.path.join(HERE, "expected.txt"), encoding="utf-8") as file:
        expected = file.read().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        root = os.path.join(folder, "tree")
        shutil.copytree(os.path.join(HERE, "fixture"), root)
        write(os.path.join(root, "pipelines", "long.cpp"), "// line\n" * 401)
        write(os.path.join(root, "plugins", "README.md"), "line\n" * 61)
        code, lines = run(root)
        for line in expected:
            if line not in lines:
                print("not reported:", line)
        for line in lines:
            if line not in expected:
                print("unexpected:  ", line)
        if lines != expected or code != 1:
            print(f"exit code {code}, {len(lines)} lines; expected 1 and {len(expected)} lines")
            return 1
        remove_faults(root, lines)
        code, lines = run(root)
        if code != 0 or lines:
            print("faults are left after the named lines were removed:", *lines, sep="\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
