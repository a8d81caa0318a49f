# shellcheck shell=bash disable=SC2034,SC2317
# tests/cli/lib.sh: what the tests of the command line share. They run as root
# in the VM, in the project folder, with the module loaded.
#
# A test is a function; `try NAME FUNCTION` runs it in a subshell that ends at
# the first failing command, and prints its verdict. `finish` ends the script.

set -u
here=$(dirname "${BASH_SOURCE[0]}")
tmp=$(mktemp -d)
failures=0
CGROUPS=/sys/fs/cgroup
PIN=/sys/fs/bpf/socksplice

# The module that is loaded, to unload and load it again.
MODULE_KO=${MODULE_KO:-build/${KREL:-$(uname -r)}/socksplice.ko}
export MODULE_KO

cleanup() {
	socksplice policy clear >/dev/null 2>&1
	rm -rf "$tmp"
}
trap cleanup EXIT

try() {
	local status
	# Not as a condition: there, the shell would ignore -e.
	(set -e; "$2") > "$tmp/log" 2>&1
	status=$?
	if [ $status = 0 ]; then
		echo "ok $1"
	else
		failures=$((failures + 1))
		echo "not ok $1: $(tail -n 1 "$tmp/log")"
		sed 's/^/# /' "$tmp/log"
	fi
}

skip() {
	echo "skip $1: $2"
}

finish() {
	exit $((failures > 0))
}

fail() {
	echo "$*"
	exit 1
}

# is WHAT ACTUAL EXPECTED
is() {
	[ "$2" = "$3" ] || fail "$1 is '$2', not '$3'"
}

# refused STATUS PATTERN COMMAND...: it fails with that status and says why in
# one line on stderr, and nothing on stdout; with -j it says so as JSON.
refused() {
	local want=$1 pattern=$2 status=0
	shift 2
	"$@" > "$tmp/out" 2> "$tmp/err" || status=$?
	is "the status of '$*'" "$status" "$want"
	is "the number of lines of '$*'" "$(wc -l < "$tmp/err")" 1
	[ ! -s "$tmp/out" ] || fail "'$*' printed $(cat "$tmp/out")"
	grep -qE "$pattern" "$tmp/err" || fail "'$*' says: $(cat "$tmp/err")"
	status=0
	"$@" -j > "$tmp/out" 2> "$tmp/err" || status=$?
	is "the status of '$* -j'" "$status" "$want"
	[ ! -s "$tmp/err" ] || fail "'$* -j' wrote to stderr: $(cat "$tmp/err")"
	jq -e --argjson status "$want" '.schema == 1 and .error.status == $status and
		(.error.message | length > 0) and (.error | has("remedy"))' "$tmp/out" >/dev/null ||
		fail "'$* -j' printed $(cat "$tmp/out")"
}

# shows JQ-FILTER COMMAND...: its JSON is of schema 1, and the filter is true.
shows() {
	local filter=$1
	shift
	"$@" -j > "$tmp/out" || fail "'$* -j' failed: $(cat "$tmp/out")"
	is "the number of lines of '$* -j'" "$(wc -l < "$tmp/out")" 1
	jq -e ".schema == 1 and ($filter)" "$tmp/out" >/dev/null ||
		fail "not true: $filter of $(cat "$tmp/out")"
}

# without jq, which takes as long again to start
counter() {
	[[ $(socksplice stats show -j) =~ \"$1\":\ ?([0-9]+) ]] && echo "${BASH_REMATCH[1]}"
}

build_talk() {
	talk=$tmp/talk
	gcc -O -Wall -Wextra -Werror -o "$talk" "$here/talk.c" || exit 1
}

# paired NUMBER TALK-ARGUMENTS...: so many pairs are made by one connection.
paired() {
	local want=$1 before
	shift
	before=$(counter pairs_made)
	"$talk" -n 1 "$@" >/dev/null
	is "the number of pairs of 'talk $*'" $(($(counter pairs_made) - before)) "$want"
}

# hold TALK-ARGUMENTS...: keeps a connection open, in process $TALK_PID.
hold() {
	coproc TALK { exec "$talk" "$@"; }
	read -r client_cookie client_poll server_cookie server_poll <&"${TALK[0]}" ||
		fail "no connection"
}

release() {
	local pid=$TALK_PID
	eval "exec ${TALK[1]}>&-"
	wait "$pid"
}

# Waits until no pair is left: the last packets of the connections may be on their way.
until_no_pairs() {
	local until=$((SECONDS + 20))
	until [ "$(counter pairs_live)" = 0 ]; do
		[ $SECONDS -lt $until ] || fail "pairs are left"
	done
}

# Waits until nothing refers to the module. The kernel frees a policy program, which
# does, in a worker some time after its last pin is gone.
unused() {
	local until=$((SECONDS + 20))
	while [ "$(cat /sys/module/socksplice/refcnt)" != 0 ]; do
		[ $SECONDS -lt $until ] || fail "in use long after the policy went"
		sleep 0.05
	done
}

unload() {
	unused
	rmmod socksplice
}

# The policy program's id, or nothing.
program_id() {
	bpftool -j prog show | jq '.[] | select(.name == "policy" and .type == "tracing") | .id'
}
