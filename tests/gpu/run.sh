#!/bin/bash
# On a machine with a GPU: builds, compares every piece and unit on the GPU with the CPU, trains the demo, and measures a language
# model and a VLM of 1 B parameters in bf16. Nothing is downloaded. See README.md beside this file.
#   tests/gpu/run.sh [BUILD]      LibTorch: TORCH_PREFIX, else python3's torch. Debian packages in a folder: OMNILOOM_DEBS=folder
set -uo pipefail
cd "$(dirname "$0")/../.."
build=$(realpath -m "${1:-build-gpu}")
readonly build debs=$build-debs
readonly started=$SECONDS
python=${PYTHON:-python3}
failed=()

say() { echo "[$((SECONDS - started)) s] $*"; }
missing() {
  echo "tests/gpu/run.sh: $*" >&2
  exit 5
}
# step NAME LIMIT COMMAND...: a step that fails is told at the end; the others go on.
step() {
  local name=$1 limit=$2
  shift 2
  say "$name"
  timeout "$limit" "$@"
  local code=$?
  [ $code = 124 ] && say "$name: stopped after $limit s"
  [ $code = 0 ] || failed+=("$name ($code)")
  return $code
}

# ---- what is here
for tool in cmake ninja g++ "$python" readelf nvidia-smi; do
  command -v "$tool" >/dev/null || missing "no $tool on the PATH"
done
nvidia-smi -L || missing "no GPU answers nvidia-smi"
prefix=${TORCH_PREFIX:-$("$python" -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.submodule_search_locations[0] if s else "")')}
[ -e "$prefix/lib/libtorch_cuda.so" ] || missing "no LibTorch with CUDA ($python's torch: '$prefix'); give TORCH_PREFIX=<folder with lib/libtorch_cuda.so>"
say "LibTorch at $prefix"

# Packages that were brought along (collect.sh) are unpacked beside the build, never into the system. A link of theirs that names a
# place in the system is turned to the unpacked file.
options=()
if [ -n "${OMNILOOM_DEBS:-}" ]; then
  for deb in "$OMNILOOM_DEBS"/*.deb; do
    dpkg -x "$deb" "$debs" || missing "cannot unpack $deb"
  done
  find "$debs" -type l -lname '/*' | while read -r link; do
    file=$(find "$debs" -type f -name "$(basename "$(readlink "$link")")" | head -1)
    [ -z "$file" ] || ln -sf "$file" "$link"
  done
  options+=("-DCMAKE_PREFIX_PATH=$debs/usr")
fi

# Is there a header? By the compiler, so that any place it looks in counts.
has() {
  local folder=()
  [ -d "$debs" ] && folder=(-I "$debs/usr/include")
  echo "#include <$1>" | g++ -std=c++20 -E -x c++ ${folder[@]+"${folder[@]}"} - >/dev/null 2>&1
}
absent=()
while read -r header package; do
  has "$header" || absent+=("$package")
done <<'LIST'
yaml-cpp/yaml.h libyaml-cpp-dev
nlohmann/json.hpp nlohmann-json3-dev
CLI/CLI.hpp libcli11-dev
spdlog/version.h libspdlog-dev
fmt/core.h libfmt-dev
boost/version.hpp libboost-dev
zlib.h zlib1g-dev
LIST
grep -q . <(find /usr/include /usr/local/include "$debs" -maxdepth 5 -name pcre2.h 2>/dev/null) || absent+=(libpcre2-dev)
if [ ${#absent[@]} -gt 0 ]; then
  echo "tests/gpu/run.sh: missing libraries: ${absent[*]}" >&2
  echo "Either: apt-get install ${absent[*]}" >&2
  missing "or, on a machine with packages: tests/gpu/collect.sh FOLDER; bring the folder here and set OMNILOOM_DEBS=FOLDER"
fi
if ! ls /usr/include/opencv4/opencv2/imgcodecs.hpp /usr/local/include/opencv4/opencv2/imgcodecs.hpp 2>/dev/null | grep -q .; then
  say "no OpenCV: built without it; the pictures of this script need none"
  options+=(-DOMNILOOM_OPENCV=OFF)
fi

# ---- build
say "configure"
cmake -S . -B "$build" -G Ninja --log-level=WARNING -DTORCH_PREFIX="$prefix" -DOMNILOOM_CUDA=ON -DOMNILOOM_BUILD_GPU_CHECK=ON \
  -DOMNILOOM_WARNINGS_ARE_ERRORS=OFF ${options[@]+"${options[@]}"} || missing "configuration failed"
step build 300 ninja -C "$build" -j"$(nproc)" omniloom vit_plugin mlp_plugin llama_plugin gpu_check || missing "the build failed"
program=$build/bin/omniloom
"$program" env --quick | grep -E '^(omniloom|libtorch|cuda|cpu|memory) '

# ---- numbers
step 'every piece and unit on the GPU against the CPU' 120 "$build/bin/gpu_check" cuda tests/gpu/units.yaml

# ---- training
data=$build/data
export GPU_DATA=$data
step 'data' 60 "$python" tests/gpu/make_data.py "$data"
fashion=/usr/share/datasets/fashion-mnist
[ -e $fashion/train-images-idx3-ubyte.gz ] || { fashion=$GPU_DATA; say "no Fashion-MNIST here: small pictures of shapes instead"; }
DATA=$fashion step 'the demo, 150 steps' 60 "$program" train configs/recipes/fashion_caption.yaml --run "$build/runs/demo" --replace \
  train.device=cuda train.steps=150 eval.every=100 eval.samples=100 checkpoint.every=0
for case in lm_1b vlm_1b; do
  step "$case" 100 "$program" train "tests/gpu/$case.yaml" --run "$build/runs/$case" --replace
done
echo
say "results (device: $(nvidia-smi --query-gpu=name --format=csv,noheader | head -1))"
for case in demo lm_1b vlm_1b; do
  [ ! -e "$build/runs/$case/metrics.jsonl" ] || "$python" tests/gpu/speed.py "$case" "$build/runs/$case"
done
if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}"
  exit 1
fi
say "all passed"
