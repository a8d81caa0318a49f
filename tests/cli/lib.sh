# shellcheck shell=bash disable=SC2034,SC2317
# tests/cli/lib.sh: what the tests of the command line share. They run as root
# in the VM, in the project folder, with the module loaded.
#
# A test is a function; `try NAME FUNCTION` runs it in a subshell that ends at
# the first failing command, and prints its verdict. `finish` ends the script.
# Starting a program is what takes time here, where all is emulated: what bash can do
# itself, it does.

set -u
here=$(dirname "${BASH_SOURCE[0]}")
tmp=$(mktemp -d)
failures=0
CGROUPS=/sys/fs/cgroup
PIN=/sys/fs/bpf/socksplice
talk=$PWD/build/cli/talk

# The module that is loaded, to unload and load it again.
MODULE_KO=${MODULE_KO:-build/${KREL:-$(uname -r)}/socksplice.ko}
export MODULE_KO

# afterwards COMMAND: runs when the case is over, or the script where it is called outside of
# one, however that ends. The last one comes first.
undo=()
afterwards() {
	undo+=("$1")
}

# What was registered is done, and no process that was left in the background stays.
over_now() {
	local i jobs
	set +e
	for ((i = ${#undo[@]} - 1; i >= 0; i--)); do
		eval "${undo[i]}"
	done
	mapfile -t jobs <<<"$(jobs -p)"
	kill "${jobs[@]}"
	wait
}

cleanup() {
	over_now >/dev/null 2>&1
	socksplice policy clear >/dev/null 2>&1
	rm -rf "$tmp"
}
trap cleanup EXIT

try() {
	local status began=$SECONDS
	# Not as a condition: there, the shell would ignore -e.
	(
		undo=()
		trap 'over_now >/dev/null 2>&1' EXIT
		: > "$tmp/refusals"
		set -e
		"$2"
		refused_as_json
	) > "$tmp/log" 2>&1
	status=$?
	if [ $status = 0 ]; then
		echo "ok $1 ($((SECONDS - began)) s)"
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

within() { # within SECONDS COMMAND...: it comes true
	local until=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $until ] || fail "not in time: $*${log:+; the log: $(cat "$log")}"
		sleep 0.1
	done
}

# spawn COMMAND…: starts it in the background. The shell opens the files of the redirections at
# this call before it starts the process. In `COMMAND > FILE &` the process does so, and until then
# FILE may have what an earlier process has said.
spawn() {
	"$@" <&0 &
}

# until_said WORD FILE…: waits until the process that was started last has written WORD to a FILE
until_said() {
	local word=$1 until=$((SECONDS + 30))
	shift
	until grep -qs "$word" "$@"; do
		# It may have ended just after it wrote the word.
		kill -0 $! || grep -qs "$word" "$@" || fail "it ended: $(cat "$@")"
		[ "$SECONDS" -lt "$until" ] || fail "it does not say $word: $(cat "$@")"
		sleep 0.05
	done
}

freeze() { # freeze PID…: stops processes, and returns when they are stopped
	local process
	kill -STOP "$@"
	for process; do
		until grep -q '^State:.*stopped' "/proc/$process/status"; do sleep 0.05; done
	done
}

# is WHAT ACTUAL EXPECTED
is() {
	[ "$2" = "$3" ] || fail "$1 is '$2', not '$3'"
}

# refused STATUS PATTERN COMMAND...: it fails with that status and says why in
# one line on stderr, and nothing on stdout; with -j it says so as JSON.
refused() {
	local want=$1 pattern=$2 status=0 lines
	shift 2
	"$@" > "$tmp/out" 2> "$tmp/err" || status=$?
	is "the status of '$*'" "$status" "$want"
	mapfile lines < "$tmp/err"
	is "the number of lines of '$*'" "${#lines[@]}" 1
	[[ ${lines[0]} == *$'\n' ]] || fail "'$*' does not end its line"
	[ ! -s "$tmp/out" ] || fail "'$*' printed $(cat "$tmp/out")"
	[[ ${lines[0]%$'\n'} =~ $pattern ]] || fail "'$*' says: ${lines[0]%$'\n'}"
	status=0
	echo "$want" >> "$tmp/refusals"
	"$@" -j >> "$tmp/refusals" 2> "$tmp/err" || status=$?
	is "the status of '$* -j'" "$status" "$want"
	[ ! -s "$tmp/err" ] || fail "'$* -j' wrote to stderr: $(cat "$tmp/err")"
}

# What `refused` got with -j in this case, each after its status: one jq looks at all of it.
refused_as_json() {
	[ -s "$tmp/refusals" ] || return 0
	jq -es '[range(0; length; 2) as $i | .[$i] as $status | .[$i + 1] | .schema == 1 and
		.error.status == $status and (.error.message | length > 0) and (.error | has("remedy"))] |
		all' "$tmp/refusals" >/dev/null || fail "statuses and what -j printed: $(cat "$tmp/refusals")"
}

# shows JQ-FILTER COMMAND...: its JSON is of schema 1, and the filter is true.
shows() {
	local filter=$1 lines
	shift
	"$@" -j > "$tmp/out" || fail "'$* -j' failed: $(cat "$tmp/out")"
	mapfile lines < "$tmp/out"
	is "the number of lines of '$* -j'" "${#lines[@]}" 1
	jq -e ".schema == 1 and ($filter)" "$tmp/out" >/dev/null ||
		fail "not true: $filter of $(cat "$tmp/out")"
}

# without jq, which takes as long again to start
counter() {
	[[ $(socksplice stats show -j) =~ \"$1\":\ ?([0-9]+) ]] && echo "${BASH_REMATCH[1]}"
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
