# shellcheck shell=bash disable=SC2034
# tests/deb/lib.sh: what the package's tests on the host and in a VM share. Both change
# the system they run in, which is one of their own. The script that sources this has set $deb.

failed=0
tmp=$(mktemp -d)
conf=/etc/socksplice/policy.toml
# shellcheck disable=SC2154
version=$(dpkg-deb -f "$deb" Version)
export DEBIAN_FRONTEND=noninteractive
# No index of man pages is wanted here, it takes long.
rm -f /var/lib/man-db/auto-update

check() { # check NAME COMMAND...
	local name=$1 status=0
	shift
	"$@" >"$tmp/log" 2>&1 || status=$?
	result "$name" $status
}

result() { # result NAME STATUS: of what has written $tmp/log
	if [ "$2" = 0 ]; then
		echo "ok deb/$1"
	else
		sed 's/^/# /' "$tmp/log" | tail -n 30
		echo "not ok deb/$1: $(tail -n 1 "$tmp/log")"
		failed=1
	fi
}

traces() { # where a package leaves things that it did not bring
	find /etc /run /usr/src /var/lib/dkms /var/lib/dpkg /var/lib/systemd /lib/modules \
		-name '*socksplice*' 2>/dev/null | sort
}

list_files() { # what purged() looks for: while the package is installed
	dpkg -L socksplice > "$tmp/files"
}

purged() { # what `traces > $tmp/before` has found before is all there is
	local file
	dpkg -P socksplice || return
	traces > "$tmp/after"
	diff "$tmp/before" "$tmp/after" || return
	while read -r file; do
		if [ -e "$file" ] && { [ ! -d "$file" ] || [[ $file == *socksplice* ]]; }; then
			echo "$file is left"
			return 1
		fi
	done < "$tmp/files"
}
