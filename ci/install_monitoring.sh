#!/usr/bin/env bash
# Prometheus, promtool, Alertmanager and amtool from Debian's packages into a folder, without installing them.
#
#     ci/install_monitoring.sh .venv/monitoring
#
# Nothing outside DEST is touched, so it needs no root; 43 + 44 MB are fetched. Run again it does nothing.
# Without a package list on the machine it fetches one, which needs root or a reader of /var/lib/apt/lists.
set -euo pipefail

dest=${1:?usage: ci/install_monitoring.sh DEST}
packages=(prometheus prometheus-alertmanager)
programs=(prometheus promtool alertmanager amtool)

fail() {
    echo "install_monitoring: $1" >&2
    echo "install_monitoring: $2" >&2
    exit 1
}

works() {
    local program
    for program in "${programs[@]}"; do
        "$dest/usr/bin/$program" --version >/dev/null 2>&1 || return 1
    done
}

if works; then
    exit 0
fi
for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null ||
        fail "no $tool on this machine" "put prometheus, promtool, alertmanager and amtool on PATH instead"
done

mkdir -p "$dest"
dest=$(cd "$dest" && pwd)
scratch=$(mktemp -d "$dest/fetch.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
# apt drops root's rights to fetch; its user must be able to write there.
chmod 755 "$scratch"

cd "$scratch"
if ! apt-get download "${packages[@]}" >log 2>&1; then
    # A machine that never fetched a package list, or one that is out of date.
    apt-get update >>log 2>&1 || fail "apt-get update failed: $(tail -n 1 log)" \
        "run it as root once: sudo apt-get update"
    apt-get download "${packages[@]}" >>log 2>&1 || fail "apt-get download ${packages[*]}: $(tail -n 1 log)" \
        "is there a network, and are these packages in the sources of apt?"
fi
for package in ./*.deb; do
    dpkg-deb -x "$package" "$dest" || fail "dpkg-deb -x $package failed" "is there room in $dest?"
done
# Debian's Alertmanager reads its templates from /usr/share, where nothing was installed. The path in our copy of
# the program becomes one of the same length that leads to the unpacked templates from the folder it starts in.
share=$dest/usr/share/prometheus
sed -i 's#/usr/share/prometheus/alertmanager#/proc/self/cwd/alertmanager-assets#g' "$dest/usr/bin/prometheus-alertmanager"
ln -sfn alertmanager "$share/alertmanager-assets"
cat >"$dest/usr/bin/alertmanager" <<WRAPPER
#!/bin/sh
# Give absolute paths: the program runs in the folder of its templates.
cd "$share" && exec "$dest/usr/bin/prometheus-alertmanager" "\$@"
WRAPPER
chmod +x "$dest/usr/bin/alertmanager"
works || fail "the programs do not start: $("$dest/usr/bin/prometheus" --version 2>&1 | tail -n 1)" \
    "they are Debian's; on another system put them on PATH instead"
echo "Prometheus and Alertmanager in $dest/usr/bin"
