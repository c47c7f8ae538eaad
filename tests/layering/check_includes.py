#!/usr/bin/env python3
"""Proves the layer order of the tree: who may include whom, and the few rules that go with it.

Plain text matching instead of the compiler's view: it takes a fraction of a second, needs no build, and sees headers
that nothing includes yet. Prints one line per fault, "file:line: what", and exits with 1 when there is any.
"""
import argparse
import os
import re
import sys

# An include points to a folder of a smaller number, or into its own folder.
LAYERS = [
    ["base"],
    ["config", "observe"],
    ["mesh"],
    ["step"],
    ["comm"],
    ["reshard"],
    ["parallel"],
    ["nn"],
    ["model"],
    ["schedule", "data", "checkpoint"],
    ["train"],
    ["resilience", "rl", "sim"],
]
LEVEL = {folder: level for level, folders in enumerate(LAYERS) for folder in folders}
PLUGIN_CORE = {"base", "config", "step", "nn", "model"}  # what a plugin and the SDK may see of the core
SIM_NEVER = {"comm", "train"}  # the simulator runs on a laptop
TOP = ["core", "plugins", "encoders", "backbones", "pipelines", "configs", "tests"]
CHECKED = ["core", "plugins", "encoders", "backbones", "pipelines"]
SOURCES = (".h", ".hpp", ".cpp", ".cc", ".cu", ".cuh", ".in")
COUNTED = (".h", ".hpp", ".cpp", ".cc", ".cu", ".cuh", ".py", ".cmake", ".sh", ".in", "CMakeLists.txt")
MAX_LINES = 400
MAX_README = 60

# What may appear only in one place: (pattern, of includes only, allowed paths, name, place).
OWNED = [
    (re.compile(r"\bc10d\b|torch/csrc/distributed"), False, re.compile(r"core/comm/\w+_group\.(cpp|h)"), "c10d",
     "core/comm/*_group.*"),
    (re.compile(r"boost/dll"), True, re.compile(r"plugins/loader/"), "Boost.DLL", "plugins/loader"),
    (re.compile(r"yaml-cpp/"), True, re.compile(r"core/config/yaml_reader\.cpp"), "yaml-cpp",
     "core/config/yaml_reader.cpp"),
    (re.compile(r"spdlog/"), True, re.compile(r"core/base/log\.cpp"), "spdlog", "core/base/log.cpp"),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
COMMENT_OR_TEXT = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""", re.S)


def zone_of(path):
    """The folder that the rules speak about: core/base, plugins/loader, encoders/vit, pipelines, ..."""
    parts = path.split("/")
    if parts[0] == "pipelines":
        return "pipelines"
    if parts[0] == "plugins" and len(parts) > 3 and parts[1] == "connectors":
        return "/".join(parts[:3])
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def is_plugin(zone):
    top = zone.split("/")[0]
    return top in ("encoders", "backbones") or zone.startswith("plugins/connectors") or zone == "plugins/template"


def allowed(source, target):
    """May a file of zone source include a file of zone target?"""
    if source == target:
        return True
    top, _, folder = target.partition("/")
    if source.startswith("core/"):
        mine = source[len("core/"):]
        if top != "core" or (mine == "sim" and folder in SIM_NEVER):
            return False
        return mine in LEVEL and folder in LEVEL and LEVEL[folder] < LEVEL[mine]
    if is_plugin(source) or source == "plugins/sdk":
        return target == "plugins/sdk" or (top == "core" and folder in PLUGIN_CORE)
    if source == "plugins/loader":
        return target == "plugins/sdk" or (top == "core" and folder in LEVEL)
    if source == "pipelines":
        return target in ("plugins/sdk", "plugins/loader") or (top == "core" and folder in LEVEL)
    return False


def without_comments(text):
    """Comments and texts become blanks; lines keep their numbers. Include lines keep their targets."""

    def blank(match):
        found = match.group(0)
        if found[0] == '"' and INCLUDE.match(text[text.rfind("\n", 0, match.start()) + 1:match.end()]):
            return found
        return re.sub(r"[^\n]", " ", found)

    return COMMENT_OR_TEXT.sub(blank, text)


class Checker:
    def __init__(self, root):
        self.root = root
        self.faults = []

    def fault(self, path, line, what):
        self.faults.append((path, line, what))

    def files(self, folder):
        for where, folders, names in os.walk(os.path.join(self.root, folder)):
            folders[:] = sorted(name for name in folders if name != "__pycache__" and not self.is_fixture(where, name))
            for name in sorted(names):
                yield os.path.relpath(os.path.join(where, name), self.root).replace(os.sep, "/")

    def is_fixture(self, where, name):
        return os.path.relpath(os.path.join(where, name), self.root).replace(os.sep, "/") == "tests/layering/fixture"

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
            return file.read()

    def check_source(self, path):
        for number, line in enumerate(without_comments(self.read(path)).splitlines(), 1):
            include = INCLUDE.match(line)
            if include and include.group(1) == '"':
                self.check_include(path, number, include.group(2))
            for pattern, includes_only, owner, name, place in OWNED:
                if (include or not includes_only) and pattern.search(line) and not owner.match(path):
                    self.fault(path, number, f"{name} may appear only in {place}")

    def check_include(self, path, number, target):
        source = zone_of(path)
        beside = os.path.join(self.root, os.path.dirname(path), target)
        if target.split("/")[0] not in TOP or ".." in target.split("/"):
            if source != "plugins/template" and (os.path.exists(beside) or ".." in target.split("/")):
                self.fault(path, number, f"includes are written from the root of the repository ({target})")
            return
        zone = zone_of(target)
        if not allowed(source, zone):
            self.fault(path, number, f"{source} may not include {zone} ({target})")

    def check_length(self, path):
        text = self.read(path)
        lines = text.count("\n") + (not text.endswith("\n") and text != "")
        if lines > MAX_LINES:
            self.fault(path, lines, f"{lines} lines; a file has at most {MAX_LINES}")

    def check_readme(self, folder):
        path = f"{folder}/README.md"
        if not os.path.exists(os.path.join(self.root, path)):
            self.fault(path, 1, f"missing; every top-level folder and every folder of core has one")
            return
        lines = self.read(path).count("\n")
        if lines > MAX_README:
            self.fault(path, lines, f"{lines} lines; a README has at most {MAX_README}")

    def run(self):
        for top in TOP:
            paths = list(self.files(top))
            if not paths:
                continue
            self.check_readme(top)
            for path in paths:
                if path.endswith(COUNTED):
                    self.check_length(path)
                if top in CHECKED and path.endswith(SOURCES):
                    self.check_source(path)
        for folder in sorted({path.split("/")[1] for path in self.files("core") if path.count("/") > 1}):
            if folder not in LEVEL and folder != "cmake":
                self.fault(f"core/{folder}", 1, "not in the layer order; add it to tests/layering/check_includes.py")
            self.check_readme(f"core/{folder}")
        return sorted(self.faults)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    root = os.path.abspath(parser.parse_args().root)
    if not os.path.isdir(os.path.join(root, "core")):
        sys.exit(f"{root}: no folder 'core' here; expected the root of the repository")
    faults = Checker(root).run()
    for path, line, what in faults:
        print(f"{path}:{line}: {what}")
    if faults:
        print(f"{len(faults)} faults in the layer order" if len(faults) > 1 else "1 fault in the layer order")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
