#!/bin/bash
# What the build needs, installed or named: setup.sh [build|demo|test|bench|lint|fuzz]. Quick when nothing is missing: one dpkg-query, a few
# stats, no network. Exit code 5 when something is missing that only the user can bring.
set -euo pipefail
cd "$(dirname "$0")/../.."
readonly purpose=${1:-build}
readonly torch_version=2.13.0

packages=(cmake g++ make binutils ninja-build ccache mold libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev
  libboost-dev zlib1g-dev libpcre2-dev libopencv-core-dev libopencv-imgproc-dev libopencv-imgcodecs-dev
  libgloo-dev)
case "$purpose" in
  build) ;;
  demo) packages+=(dataset-fashion-mnist) ;;
  test)
    packages+=(dataset-fashion-mnist libgtest-dev openmpi-bin python3)
    [ -n "${OMNILOOM_TEST_PYTHON:-}" ] || packages+=(python3-venv)
    ;;
  bench)
    packages+=(libbenchmark-dev python3)
    [ -n "${OMNILOOM_BENCH_PYTHON:-}" ] || packages+=(python3-venv)
    ;;
  lint) packages+=(git clang-format clang-tidy libgtest-dev) ;;
  fuzz) packages+=(clang libclang-rt-dev python3) ;;
  *) echo "setup.sh: unknown purpose '$purpose'; expected build, demo, test, bench, lint or fuzz" >&2; exit 2 ;;
esac

fail() {
  echo "$*" >&2
  exit 5
}

# ---- LibTorch: a prefix that was given, the active python3's, or a virtual environment in .deps
has_torch() { [ -e "$1/lib/libtorch_cpu.so" ] && [ -d "$1/include/ATen" ]; }

find_torch() {
  local prefix
  if [ -n "${TORCH_PREFIX:-}" ]; then
    has_torch "$TORCH_PREFIX" || fail "TORCH_PREFIX=$TORCH_PREFIX holds no LibTorch (lib/libtorch_cpu.so, include/ATen)"
    echo "$TORCH_PREFIX"
    return
  fi
  local IFS=':;'
  for prefix in ${CMAKE_PREFIX_PATH:-}; do
    for prefix in "$prefix" "$prefix/torch"; do
      if has_torch "$prefix"; then echo "$prefix"; return; fi
    done
  done
  if command -v python3 >/dev/null; then
    # The version is read from the package's file: importing torch would take seconds.
    prefix=$(python3 - <<'PY' 2>/dev/null || true
import importlib.util, re
spec = importlib.util.find_spec("torch")
if spec and spec.submodule_search_locations:
    root = spec.submodule_search_locations[0]
    version = re.search(r"(\d+)\.(\d+)", open(root + "/version.py").read())
    if (2, 8) <= tuple(map(int, version.groups())) <= (2, 14):
        print(root)
PY
    )
    if [ -n "$prefix" ] && has_torch "$prefix"; then echo "$prefix"; return; fi
  fi
  for prefix in .deps/venv/lib/python3*/site-packages/torch; do
    if has_torch "$prefix"; then echo "$PWD/$prefix"; return; fi
  done
}

torch=$(find_torch)
if [ -z "$torch" ]; then
  packages+=(python3 python3-venv)
fi

# ---- Debian packages
if command -v dpkg-query >/dev/null; then
  installed=" $(dpkg-query -W -f='${db:Status-Status}:${Package} ' "${packages[@]}" 2>/dev/null || true)"
  missing=()
  for package in "${packages[@]}"; do
    [[ "$installed" == *" installed:$package "* ]] || missing+=("$package")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    install="apt-get install -y --no-install-recommends ${missing[*]}"
    if [ "$(id -u)" -ne 0 ]; then
      echo "Debian packages are missing. Run this once, then make again:" >&2
      fail "  sudo $install"
    fi
    echo "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    # Package lists may be absent or old; they are refreshed only when needed.
    $install >"$log" 2>&1 || { apt-get update >"$log" 2>&1 && $install >"$log" 2>&1; } || {
      cat "$log" >&2
      fail "cannot install packages: $install"
    }
  fi
else
  echo "no dpkg here: install the equivalents of ${packages[*]} yourself" >&2
fi

# ---- LibTorch, last route
if [ -z "$torch" ]; then
  echo "LibTorch $torch_version: pip installs it into .deps/venv. About 0.2 GB to download and 0.9 GB on disk for a CPU build; an index"
  echo "that only has the CUDA build sends about 3 GB. pip's own settings (index, cache, proxy) are used. To use a LibTorch that is"
  echo "already here instead, interrupt and run: make TORCH_PREFIX=/path/to/torch"
  mkdir -p .deps
  [ -x .deps/venv/bin/pip ] || python3 -m venv .deps/venv || fail "cannot make .deps/venv; is python3-venv installed?"
  .deps/venv/bin/pip install --disable-pip-version-check --progress-bar off "torch==$torch_version" ||
    fail "pip could not install torch==$torch_version; give a LibTorch of your own: make TORCH_PREFIX=/path/to/torch"
  torch=$(find_torch)
  [ -n "$torch" ] || fail "torch was installed, but .deps/venv holds no libtorch_cpu.so"
fi

# ---- A Python with the packages that Omniloom is compared with
# find_python VARIABLE FOLDER NAME...: the interpreter that the variable names, checked; else that of the virtual environment in
# FOLDER once it holds every package; else nothing.
find_python() {
  local variable=$1 folder=$2 name missing path
  local given=${!variable:-}
  shift 2
  if [ -n "$given" ]; then
    path=$(command -v "$given") || fail "$variable=$given: no such program"
    missing=$("$given" -c 'import importlib.util, sys
print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])' "$@" 2>/dev/null) ||
      fail "$variable=$given is no Python 3"
    [ -z "$missing" ] || fail "$variable=$given lacks $missing; unset it, and set-up installs them"
    echo "$(cd "$(dirname "$path")" && pwd)/$(basename "$path")"
    return
  fi
  for name in "$@"; do
    compgen -G "$folder/lib/python3*/site-packages/$name/__init__.py" >/dev/null || return 0
  done
  echo "$PWD/$folder/bin/python"
}

# install_python VARIABLE FOLDER PACKAGE...: into a virtual environment, by pip's own settings.
install_python() {
  local variable=$1 folder=$2
  shift 2
  echo "pip's own settings (index, cache, proxy) are used. To use a Python that has them instead, interrupt and run:"
  echo "make $purpose $variable=/path/to/python"
  [ -x "$folder/bin/pip" ] || python3 -m venv "$folder" || fail "cannot make $folder; is python3-venv installed?"
  "$folder/bin/pip" install --disable-pip-version-check --progress-bar off --quiet "$@" ||
    fail "pip could not install them; give a Python of your own: make $purpose $variable=/path/to/python"
}

mkdir -p .deps
case "$purpose" in
  test)
    wanted=(OMNILOOM_TEST_PYTHON .deps/test-venv)
    needed=(PIL tokenizers tensorboard numpy)
    wheels=('pillow>=12,<14' 'tokenizers>=0.22,<0.24' 'tensorboard>=2.20,<3' 'numpy>=2,<3')
    size="For tests, pip installs pillow, tokenizers, tensorboard and numpy into .deps/test-venv: about 60 MB to download, 0.25 GB on disk."
    ;;
  bench)
    wanted=(OMNILOOM_BENCH_PYTHON .deps/bench-venv)
    needed=(torch transformers numpy PIL)
    wheels=("torch==$torch_version" 'transformers>=5,<6' 'numpy>=2,<3' 'pillow>=12,<14')
    size="For the bench, pip installs torch $torch_version, transformers, numpy and pillow into .deps/bench-venv: about 0.25 GB to download and
1.1 GB on disk with a CPU build of torch, 3 GB and more from an index that only has the CUDA build."
    ;;
  *) wanted=() ;;
esac
if [ ${#wanted[@]} -gt 0 ]; then
  python=$(find_python "${wanted[@]}" "${needed[@]}")
  if [ -z "$python" ]; then
    echo "$size"
    install_python "${wanted[@]}" "${wheels[@]}"
    python=$(find_python "${wanted[@]}" "${needed[@]}")
    [ -n "$python" ] || fail "pip was content, but ${wanted[1]} lacks a package"
  fi
  echo "$python" >.deps/$purpose-python
fi

if [ "$(cat .deps/torch-prefix 2>/dev/null || true)" != "$torch" ]; then
  echo "$torch" >.deps/torch-prefix
  echo "LibTorch: $torch"
fi
