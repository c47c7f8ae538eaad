#!/bin/bash
# lint.sh BUILD changed|all: format of every file, the layer order, and clang-tidy (40 s for a file that includes ATen, hence only
# what changed against LINT_BASE: by default the last commit, and whatever is not committed).
set -uo pipefail
cd "$(dirname "$0")/../.."
readonly build=$1 scope=$2
failed=0

mapfile -t ours < <(git ls-files -co --exclude-standard -- '*.h' '*.cpp' | while read -r f; do [ -f "$f" ] && echo "$f"; done)
echo "clang-format: ${#ours[@]} files"
clang-format --dry-run -Werror "${ours[@]}" || failed=1

echo "layer order"
python3 tests/layering/check_includes.py --root "$PWD" || failed=1

sources=()
if [ "$scope" = all ]; then
  for f in "${ours[@]}"; do [[ $f == *.cpp ]] && sources+=("$f"); done
else
  base=${LINT_BASE:-$(git rev-parse --verify -q HEAD~1 || git hash-object -t tree /dev/null)}
  mapfile -t sources < <({ git diff --name-only --diff-filter=d "$base" -- '*.cpp'; git ls-files -o --exclude-standard -- '*.cpp'; } | sort -u)
fi
# Only what the build compiles: templates and fixtures have no entry in the compile database.
compiled=()
for f in "${sources[@]}"; do grep -qF "\"$PWD/$f\"" "$build/compile_commands.json" && compiled+=("$f"); done
echo "clang-tidy: ${#compiled[@]} files"
if [ ${#compiled[@]} -gt 0 ]; then
  printf '%s\n' "${compiled[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy -p "$build" --quiet || failed=1
fi
[ $failed = 0 ] && echo "lint: clean"
exit $failed
