#!/bin/sh
# Installs what `make` has built, or with --remove takes it away again; called by the Makefile and by deb.sh.
#
#   WEIR      the binary, with weir-lab beside it    PREFIX   /usr/local unless given
#   DESTDIR   put before all paths    SYSTEM   where D-Bus and polkit look, which read nothing below /usr/local
set -eu
cd "$(dirname "$0")/.."
: "${WEIR:=target/release/weir}" "${PREFIX:=/usr/local}" "${SYSTEM:=/usr}" "${DESTDIR:=}"
lab=${WEIR%weir}weir-lab
for program in "$WEIR" "$lab"; do
    if [ "${1:-}" != --remove ] && [ ! -x "$program" ]; then
        echo "install: $program is not there: run make first" >&2
        exit 2
    fi
done
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

# put MODE SOURCE TARGET
put() {
    if [ "$remove" = yes ]; then
        rm -f "$DESTDIR$3"
    else
        install -D -m "$1" "$2" "$DESTDIR$3"
    fi
}

# The unit names the binary where it lies.
put_unit() {
    sed "s|/usr/bin/weir|$PREFIX/bin/weir|" "systemd/$1" > "$stage/$1"
    put 644 "$stage/$1" "$PREFIX/lib/systemd/system/$1"
}

# Pages and completions are made by weir-lab; to remove them their names are enough.
generate() {
    [ "$remove" = yes ] && return
    "$lab" man --out "$stage"
    for shell in bash zsh fish; do
        "$lab" completions "$shell" > "$stage/$shell"
    done
}

remove=no
[ "${1:-}" = --remove ] && remove=yes
generate
share=$PREFIX/share
put 755 "$WEIR" "$PREFIX/bin/weir"
put 755 "$lab" "$PREFIX/bin/weir-lab"
put_unit weir.service
put_unit weir.socket
put 644 systemd/weir.sysusers "$PREFIX/lib/sysusers.d/weir.conf"
put 644 systemd/weir.tmpfiles "$PREFIX/lib/tmpfiles.d/weir.conf"
for drop_in in systemd/weir.service.d/*.conf; do
    put 644 "$drop_in" "$share/weir/weir.service.d/${drop_in##*/}"
done
for page in weir.1 weir.toml.5 weir-protocol.7; do
    put 644 "$stage/$page" "$share/man/man${page##*.}/$page"
done
put 644 "$stage/bash" "$share/bash-completion/completions/weir"
put 644 "$stage/zsh" "$share/zsh/site-functions/_weir"
put 644 "$stage/fish" "$share/fish/vendor_completions.d/weir.fish"
for document in README.md docs/*.md LICENSE-APACHE LICENSE-MIT; do
    put 644 "$document" "$share/doc/weir/${document##*/}"
done
# The bus's files, where this version has them.
for bus in dbus-1/system.d/org.weir.Weir1.conf polkit-1/actions/org.weir.Weir1.policy \
    polkit-1/rules.d/org.weir.Weir1.rules dbus-1/interfaces/org.weir.Weir1.xml; do
    if [ -f "systemd/${bus##*/}" ]; then
        put 644 "systemd/${bus##*/}" "$SYSTEM/share/$bus"
    fi
done
if [ "$remove" = yes ]; then
    rmdir "$DESTDIR$share/weir/weir.service.d" "$DESTDIR$share/weir" "$DESTDIR$share/doc/weir" 2>/dev/null || true
fi
