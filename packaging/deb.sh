#!/bin/sh
# Builds a Debian package of what `make` has built, with dpkg-deb alone: deb.sh [FOLDER]
set -eu
cd "$(dirname "$0")/.."
: "${WEIR:=target/release/weir}" "${COMPRESSION:=xz}"
folder=${1:-target}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"

DESTDIR=$stage PREFIX=/usr WEIR=$WEIR packaging/install.sh
if command -v strip > /dev/null; then
    strip --strip-unneeded "$stage/usr/bin/weir" "$stage/usr/bin/weir-lab"
fi
find "$stage/usr/share/man" -type f -exec gzip -9n {} +
# Debian's zsh looks here.
mv "$stage/usr/share/zsh/site-functions" "$stage/usr/share/zsh/vendor-completions"
rm "$stage"/usr/share/doc/weir/LICENSE-*
cat > "$stage/usr/share/doc/weir/copyright" << END
Weir is distributed under the terms of either the Apache License, version 2.0
(/usr/share/common-licenses/Apache-2.0), or the following.

$(cat LICENSE-MIT)
END

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
architecture=$(dpkg --print-architecture)
# The newest symbols that the programs ask of the C library tell which one they need.
libc=$(grep -aoh 'GLIBC_2\.[0-9]*' "$stage"/usr/bin/weir* | sort -Vu | tail -1 | cut -d_ -f2)
mkdir "$stage/DEBIAN"
cat > "$stage/DEBIAN/control" << END
Package: weir
Version: $version
Architecture: $architecture
Maintainer: The Weir authors <weir@localhost>
Section: science
Priority: optional
Depends: libc6 (>= ${libc:-2.31}), libgcc-s1
Recommends: systemd
Installed-Size: $(du -sk --exclude=DEBIAN "$stage" | cut -f1)
Description: inference daemon for weakly-hard deadlines
 Weir serves neural networks on one edge box under deadlines, computes
 beforehand the largest request rate at which its promises hold, and says
 so at once when one no longer does.
END
for script in postinst prerm postrm; do
    install -m 755 "packaging/$script" "$stage/DEBIAN/$script"
done
mkdir -p "$folder"
package=$folder/weir_${version}_$architecture.deb
dpkg-deb --root-owner-group -Z"$COMPRESSION" --build "$stage" "$package"
