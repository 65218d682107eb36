#!/usr/bin/env bash
# Installs the programs into a folder and makes the Debian package, and looks at both.
#
#   packages_test.sh BUILD
set -euo pipefail
build=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for tool in dpkg-deb dpkg-shlibdeps systemd-analyze; do
  command -v "$tool" >/dev/null || {
    echo "skipped: $tool is missing"
    exit 77
  }
done
fail() {
  echo "$*" >&2
  exit 1
}

programs=(metp-coordinator metp-worker metp-rank metpctl)
units=(metp-coordinator.service metp-worker@.service)

for prefix in /usr "/opt/METP here"; do
  DESTDIR=$folder/installed cmake --install "$build" --component metp --prefix "$prefix" >/dev/null
  for program in "${programs[@]}"; do
    "$folder/installed$prefix/bin/$program" --version >/dev/null || fail "$prefix/bin/$program does not run"
  done
  for unit in "${units[@]}"; do
    started=$(sed -n 's/^ExecStart="\([^"]*\)".*/\1/p' "$folder/installed$prefix/lib/systemd/system/$unit")
    [[ $started == "$prefix"/bin/metp-* && -x $folder/installed$started ]] || fail "$prefix: $unit starts $started"
  done
done

(cd "$folder" && cpack --config "$build/CPackConfig.cmake" -B "$folder/package" >cpack.log 2>&1) || {
  cat "$folder/cpack.log"
  fail "cpack failed"
}
package=$(compgen -G "$folder/package/metp_*.deb") || fail "cpack made no package"
[[ $(wc -l <<<"$package") == 1 ]] || fail "cpack made more than one package: $package"
content=$(dpkg-deb -c "$package" | awk '{print $6}')
for file in "${programs[@]/#//usr/bin/}" "${units[@]/#//usr/lib/systemd/system/}" /usr/lib/sysusers.d/metp.conf \
  /etc/default/metp-coordinator /etc/default/metp-worker /usr/share/metp/examples/licenses-4k.yaml; do
  grep -qx ".$file" <<<"$content" || fail "the package lacks $file:"$'\n'"$content"
done
! grep -q -e _test -e bench -e '[.]so' <<<"$content" || fail "the package has what it should not:"$'\n'"$content"
grep -q 'libgrpc++' <<<"$(dpkg-deb -f "$package" Depends)" || fail "the package does not depend on its libraries"
grep -q conffiles <<<"$(dpkg-deb -I "$package")" || fail "the package has no conffiles"

# Maintainer's scripts: there, and at peace with a machine on which nothing of it runs.
dpkg-deb -e "$package" "$folder/control"
for script in postinst prerm postrm; do [[ -x $folder/control/$script ]] || fail "the package has no $script"; done
for call in "prerm upgrade 1.0" "postrm upgrade 1.0" "postinst triggered"; do
  # shellcheck disable=SC2086
  "$folder/control"/$call || fail "$call fails"
done

# Units: what they start is in the package; every directive is one that systemd knows.
dpkg-deb -x "$package" "$folder/unpacked"
for unit in "${units[@]}"; do
  sed "s|/usr/bin/|$folder/unpacked/usr/bin/|; s|^User=.*|User=root|" "$folder/unpacked/usr/lib/systemd/system/$unit" \
    >"$folder/${unit/@/@1}"
  said=$(systemd-analyze verify --man=no "$folder/${unit/@/@1}" 2>&1) || fail "$unit: $said"
  ! grep "$unit\|${unit/@/@1}" <<<"$said" || fail "$unit: $said"
done

# Options in units and defaults are ones that the programs have.
for program in metp-coordinator metp-worker; do
  help=$("$folder/unpacked/usr/bin/$program" --help)
  while read -r option; do
    grep -q -e "$option" <<<"$help" || fail "$program has no $option"
  done < <(cat "$folder"/unpacked/usr/lib/systemd/system/"$program"*.service "$folder/unpacked/etc/default/$program" |
    sed 's/#.*//' | grep -o -e '--[a-z-]*')
done
echo "$(basename "$package"), $(dpkg-deb -f "$package" Installed-Size) KiB installed"
