#!/bin/bash
# Puts the Debian packages that tests/gpu/run.sh needs into a folder, on a machine that has them: collect.sh FOLDER. About 15 MB; OpenCV is
# left out, it brings a hundred libraries and the script needs none of its formats.
set -euo pipefail
mkdir -p "$1"
cd "$1"
runtime=$(apt-cache depends libyaml-cpp-dev libspdlog-dev libfmt-dev libpcre2-dev | sed -nE 's/^ *Depends: (libyaml-cpp0[^ ]*|libspdlog1[^ ]*|libfmt9|libpcre2-(8|16|32|posix[0-9])-?0?)$/\1/p' | sort -u)
boost=$(apt-cache depends libboost-dev | sed -nE 's/^ *Depends: (libboost[0-9.]+-dev)$/\1/p')
# shellcheck disable=SC2086
apt-get download libyaml-cpp-dev nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev libpcre2-dev zlib1g-dev zlib1g $boost $runtime
ls -l
