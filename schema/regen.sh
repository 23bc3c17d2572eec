#!/usr/bin/env bash
# Compiles schema/*.capnp into schema/bowline.cgr, the form build.rs reads, and stamps it with the
# hash of the texts. Run it after every change of a .capnp file and commit the result.
#
# Needs the `capnp` tool, 0.9 or newer (Debian: capnproto). Users of the crate do not.
#   schema/regen.sh           writes the compiled form
#   schema/regen.sh --check   writes nothing; fails if the checked-in form is not what the texts give
set -euo pipefail
cd "$(dirname "$0")"

command -v capnp >/dev/null || { echo "regen.sh: the capnp tool is missing (Debian: apt-get install capnproto)" >&2; exit 1; }
files=(*.capnp)
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

capnp compile --no-standard-import -Ivendor --src-prefix=. -o- "${files[@]}" > "$fresh/bowline.cgr"
{ cat "${files[@]}" | sha256sum | cut -d' ' -f1; capnp --version; } > "$fresh/bowline.cgr.stamp"

if [ "${1:-}" = --check ]; then
  # The tool writes its own version into the compiled form.
  if [ "$(tail -n 1 bowline.cgr.stamp)" != "$(capnp --version)" ]; then
    echo "regen.sh: checked in was made by $(tail -n 1 bowline.cgr.stamp), here is $(capnp --version): use the same, or run schema/regen.sh and commit what it writes" >&2
    exit 1
  fi
  for made in bowline.cgr bowline.cgr.stamp; do
    cmp -s "$fresh/$made" "$made" || { echo "regen.sh: schema/$made is out of date: run schema/regen.sh and commit it" >&2; exit 1; }
  done
  echo "schema/bowline.cgr is up to date"
else
  cp "$fresh"/bowline.cgr "$fresh"/bowline.cgr.stamp .
  echo "wrote schema/bowline.cgr"
fi
