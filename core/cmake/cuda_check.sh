#!/bin/bash
# Compiles and links the whole tree for GPUs, on a machine that needs none: cuda_check.sh BUILD. Nothing is run on a GPU.
# LibTorch with CUDA comes from OMNILOOM_CUDA_PREFIX (a folder with lib/libtorch_cuda.so and include/), else pip installs it into
# .deps/cuda-venv the first time. Without nvcc it says so and succeeds.
set -euo pipefail
cd "$(dirname "$0")/../.."
readonly build=${1:-build-cuda}
readonly torch='torch==2.14.*'

fail() {
  echo "cuda-check: $*" >&2
  exit 5
}

nvcc=$(command -v nvcc || true)
[ -n "$nvcc" ] || nvcc=$(ls "${OMNILOOM_NVCC_FOLDER:-/usr/local/cuda/bin}/nvcc" 2>/dev/null || true)
if [ -z "$nvcc" ]; then
  echo "cuda-check: SKIPPED: no nvcc on the PATH or in /usr/local/cuda/bin, so there is no CUDA to compile against"
  exit 0
fi

core/cmake/setup.sh test
prefix=${OMNILOOM_CUDA_PREFIX:-}
if [ -z "$prefix" ]; then
  prefix=$(ls -d "$PWD"/.deps/cuda-venv/lib/python3*/site-packages/torch 2>/dev/null || true)
  if [ ! -e "$prefix/lib/libtorch_cuda.so" ]; then
    echo "cuda-check: pip installs $torch with CUDA into .deps/cuda-venv: about 3 GB to download, 6 GB on disk. pip's own settings"
    echo "(index, cache, proxy) are used. To use one that is here already, interrupt and run:"
    echo "make cuda-check OMNILOOM_CUDA_PREFIX=/path/to/torch"
    mkdir -p .deps
    [ -x .deps/cuda-venv/bin/pip ] || python3 -m venv .deps/cuda-venv || fail "cannot make .deps/cuda-venv; is python3-venv installed?"
    .deps/cuda-venv/bin/pip install --disable-pip-version-check --progress-bar off --quiet "$torch" ||
      fail "pip could not install $torch; give one: make cuda-check OMNILOOM_CUDA_PREFIX=/path/to/torch"
    prefix=$(ls -d "$PWD"/.deps/cuda-venv/lib/python3*/site-packages/torch)
  fi
fi
[ -e "$prefix/lib/libtorch_cuda.so" ] || fail "$prefix holds no lib/libtorch_cuda.so; the index gave a LibTorch without CUDA"

test_python=()
[ ! -e .deps/test-python ] || test_python=("-DOMNILOOM_TEST_PYTHON=$(cat .deps/test-python)")
started=$SECONDS
cmake -S . -B "$build" -G Ninja --log-level=WARNING -DTORCH_PREFIX="$prefix" -DOMNILOOM_CUDA=ON -DOMNILOOM_BUILD_TESTS=ON \
  ${test_python[@]+"${test_python[@]}"}
NINJA_STATUS="[%f/%t] " ninja -j"${JOBS:-$(nproc)}" -C "$build" all tests

# ---- what was made
core=$build/lib/libomniloom_core.so
program=$build/bin/omniloom
needed() { readelf -d "$1" | sed -nE 's/.*\(NEEDED\).*\[(.*)\]/\1/p'; }

needed "$core" | grep -qx 'libtorch_cuda.so' || fail "$core does not need libtorch_cuda.so"
libraries=$(ldd "$program") || fail "ldd $program failed"
grep -q 'libtorch_cuda.so => /' <<<"$libraries" || fail "$program does not load libtorch_cuda.so"
! grep 'not found' <<<"$libraries" || fail "libraries of $program are missing"
! ldd -r "$program" 2>&1 | grep -F 'undefined symbol' || fail "$program has symbols that nobody defines"

# Symbols by library, demangled, without their arguments. (A pipe into grep -q would end nm early, which pipefail calls a failure.)
names=$(mktemp -d)
trap 'rm -rf "$names"' EXIT
nm -D --undefined-only -C "$core" | sed -nE 's/^ *U ([^(]*).*/\1/p' >"$names/core"
for path in $(sed -nE 's/.*=> (\/[^ ]+).*/\1/p' <<<"$libraries" | grep -E '/lib(torch|c10)'); do
  nm -D --defined-only -C "$path" | cut -c20- | sed 's/(.*//' >"$names/$(basename "$path")"
done
defined_in() { (cd "$names" && grep -lxF "$1" lib* || true); }
echo "cuda-check: the program loads $(grep -cE '(cuda|cublas|cudnn|nccl|cu[a-z]+)[^ ]* => /' <<<"$libraries") libraries of CUDA, none is missing"
for name in _flash_attention_forward _flash_attention_backward _efficient_attention_forward _efficient_attention_backward; do
  grep -qxF "at::_ops::$name::call" "$names/core" || fail "$core does not call $name"
  caller=$(defined_in "at::_ops::$name::call")
  kernel=$(defined_in "at::native::$name")
  [ -n "$caller" ] && [ "$kernel" = libtorch_cuda.so ] || fail "$name: call in '$caller', kernel in '$kernel'"
  echo "cuda-check: $name: called through $caller, its kernel is in $kernel"
done
for plugin in "$build"/lib/omniloom/plugins/*.omniloom.so; do
  ! ldd -r "$plugin" 2>&1 | grep -E 'undefined symbol|not found' || fail "$plugin does not link"
done
"$program" env --quick | grep -E '^(libtorch|cuda) ' | sed 's/^/cuda-check: /'
echo "cuda-check: core, plugins, program and tests compile and link with CUDA; $((SECONDS - started)) s. Nothing ran on a GPU here."
