#!/usr/bin/env bash
# Copies the root file system of a Redis or Valkey image, and writes a redis-server beside it that runs the image's
# program with the image's own libraries: tools/server-of-image.sh redis:6.2 server
set -euo pipefail
image=$1 folder=$2
mkdir -p "$folder/root"
container=$(docker create "$image")
trap 'docker rm "$container" >/dev/null' EXIT
docker export "$container" | tar -x -C "$folder/root" --exclude=dev --exclude=proc --exclude=sys
program=$(find "$folder/root/usr/local/bin" -type f \( -name redis-server -o -name valkey-server \) | head -n 1)
loader=$(find "$folder/root" -type f \( -name 'ld-linux-*.so.*' -o -name 'ld-2.*.so' \) | head -n 1)
libraries=$(find "$folder/root" -name '*.so*' -path '*lib*' -printf '%h\n' | sort -u | paste -sd:)
cat >"$folder/redis-server" <<RUN
#!/bin/sh
exec '$loader' --library-path '$libraries' '$program' "\$@"
RUN
chmod +x "$folder/redis-server"
"$folder/redis-server" --version
