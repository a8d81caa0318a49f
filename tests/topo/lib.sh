# shellcheck shell=bash disable=SC2034,SC2317
# tests/topo/lib.sh: what the topology tests share. They run as root in the VM,
# in the project folder, with the module loaded. A test is a function that ends
# at its first failing command; `try NAME FUNCTION` prints its verdict.
#
# On a busy host a connection may be idle for longer than the default path_timeout, and its next bytes
# would go by TCP. So a test has it at PATH_TIMEOUT seconds, until it loads the module again.
#
# Commands in namespaces do not see the cgroups: `ip netns exec` mounts /sys anew.
# Processes that have to wait for each other do so by their output: a server
# prints "serving", a client told to hold prints "holding".

set -u
here=$(dirname "${BASH_SOURCE[0]}")
load=$PWD/build/topo/load
tmp=$(mktemp -d)
failures=0
started=()
page=$(getconf PAGESIZE)
PARAMETERS=/sys/module/socksplice/parameters
ENROLL=$PARAMETERS/enroll_all
PATH_TIMEOUT=300
path_timeout=$(cat $PARAMETERS/path_timeout)
MODULE_KO=${MODULE_KO:-build/${KREL:-$(uname -r)}/socksplice.ko}
export MODULE_KO
# In shadow mode connections are matched and counted, and no byte goes by ring.
shadow='' MADE=pairs_made
if [ "$(cat $PARAMETERS/shadow)" = Y ]; then
	shadow=1 MADE=shadow_matches
fi

enroll() { # enroll 0|1
	echo "$1" > "$ENROLL"
}

# Waits for the last pair to end, and prints those that do not. TCP needs the namespaces for
# that: with a router gone between them it keeps a closed connection, and so its pair, for
# minutes. The next test would count such a pair as a stranger's.
pairs_left() {
	[ -d /sys/module/socksplice ] || return 0
	"$load" pairs --want 0 --seconds 30 >/dev/null || "$load" list
}

tidy() { # fails if the test leaves a pair
	local pid left
	set +e
	for pid in ${started[@]+"${started[@]}"}; do
		kill -9 "$pid"
	done 2>/dev/null
	wait 2>/dev/null
	started=()
	rm -f "$tmp"/*.in "$tmp"/*.out
	left=$(pairs_left)
	[ -z "$left" ] || socksplice pair drop --all
	ip -all netns delete 2>/dev/null
	if [ -w "$ENROLL" ]; then
		enroll 0
	fi
	[ -z "$left" ] || { echo "it leaves a pair: ${left//$'\n'/; }"; return 1; }
}

# The end of a test. Its reason is what it said last; processes that it started say more when
# tidy() kills their servers.
ended() { # ended STATUS
	local status=$1
	[ "$status" = 0 ] || tail -n 1 "$tmp/log" > "$tmp/why"
	if ! tidy && [ "$status" = 0 ]; then
		status=1
		tail -n 1 "$tmp/log" > "$tmp/why"
	fi
	exit "$status"
}

be_patient() { # be_patient SECONDS
	[ ! -w $PARAMETERS/path_timeout ] || echo "$1" > $PARAMETERS/path_timeout
}

trap 'tidy; be_patient "$path_timeout"; rm -rf "$tmp"' EXIT

try() {
	local status
	: > "$tmp/why"
	be_patient "$PATH_TIMEOUT"
	# Not as a condition: there, the shell would ignore -e.
	(set -e; trap 'ended $?' EXIT; "$2") > "$tmp/log" 2>&1 </dev/null
	status=$?
	if [ $status = 0 ]; then
		echo "ok topo/$1${shadow:+/shadow}"
		sed -n 's/^remark: /# /p' "$tmp/log"
	else
		failures=$((failures + 1))
		echo "not ok topo/$1${shadow:+/shadow}: $(cat "$tmp/why")"
		sed 's/^/# /' "$tmp/log"
	fi
}

finish() {
	exit $((failures > 0))
}

fail() {
	echo "$*"
	exit 1
}

# A network namespace; "-" stands for the one we are in.
ns_add() {
	local n
	for n; do
		ip netns add "$n"
		ip -n "$n" link set lo up
	done
}

ns_inode() {
	if [ "$1" = - ]; then
		stat -Lc %i /proc/self/ns/net
	else
		stat -Lc %i "/run/netns/$1"
	fi
}

within() { # within NS COMMAND…
	local ns=$1
	shift
	if [ "$ns" = - ]; then
		"$@"
	else
		ip netns exec "$ns" "$@"
	fi
}

veth() { # veth NS-A NAME-A ADDRESS-A NS-B NAME-B ADDRESS-B: "-" is no address
	ip link add "$2" netns "$1" type veth peer name "$5" netns "$4"
	veth_up "$1" "$2" "$3"
	veth_up "$4" "$5" "$6"
}

veth_up() { # veth_up NS NAME ADDRESS: an IPv4 one
	{
		[ "$3" = - ] || echo "addr add $3 dev $2"
		echo "link set $2 up"
	} | ip -n "$1" -batch -
}

# start NAME NS WORD COMMAND…: in the background, until it prints WORD. It
# goes on until `stop NAME`. $pid_NAME is COMMAND itself, not a shell around it.
start() {
	local name=$1 ns=$2 word=$3 line='' part in out pid command
	shift 3
	command=("$@")
	[ "$ns" = - ] || command=(ip netns exec "$ns" "$@")
	mkfifo "$tmp/$name.in" "$tmp/$name.out"
	exec {in}<>"$tmp/$name.in" {out}<>"$tmp/$name.out"
	"${command[@]}" <"$tmp/$name.in" >"$tmp/$name.out" {in}>&- {out}>&- &
	pid=$!
	started+=("$pid")
	eval "in_$name=$in out_$name=$out pid_$name=$pid"
	# What came before a time-out is kept: it may be half a line.
	until read -r -t 2 -u "$out" part; do
		line+=$part
		kill -0 "$pid" 2>/dev/null || fail "$name ended"
	done
	line+=$part
	[[ $line == "$word"* ]] || fail "$name said: $line"
}

# Tells NAME to end and demands that it ends well. By a line: the end of its input
# would not come, as processes started later hold the pipe open, too.
stop() {
	local in out pid
	eval "in=\$in_$1 out=\$out_$1 pid=\$pid_$1"
	echo >&"$in"
	exec {in}>&- {out}<&-
	rm -f "$tmp/$1.in" "$tmp/$1.out"
	wait "$pid"
}

serve() { # serve NAME NS ADDRESS PORT OPTION…
	local name=$1 ns=$2
	shift 2
	start "$name" "$ns" serving "$load" serve "$@"
}

hold() { # hold NAME NS ADDRESS PORT OPTION…
	local name=$1 ns=$2
	shift 2
	start "$name" "$ns" holding "$load" run "$@" --hold
}

connect() { # connect NAME NS ADDRESS PORT OPTION…: its rounds wait for `go NAME`
	local name=$1 ns=$2
	shift 2
	start "$name" "$ns" connected "$load" run "$@" --wait --hold
}

go() { # go NAME [again]: until NAME is "holding", which it may do again
	local in out line
	eval "in=\$in_$1 out=\$out_$1"
	echo "${2-}" >&"$in"
	read -r -t 120 -u "$out" line || fail "$1 did not come to its end"
	[ "$line" = holding ] || fail "$1 said: $line"
}

# field NAME, of a line of `load pairs`. It starts no program: that takes a tenth of a second in
# an emulated VM, and there are many lines.
field() {
	local words i
	read -ra words
	for ((i = 0; i < ${#words[@]}; i += 2)); do
		[ "${words[i]}" != "$1" ] || echo "${words[i + 1]}"
	done
}

# expect_pairs N [busy] [NS-GROUP…]: that many pairs, all of whose bytes after
# the first of each end went by ring (in shadow mode: none did).
expect_pairs() {
	local n=$1 line
	shift
	line=$("$load" pairs --want "$n" --seconds 60 "$@") || { echo "$line"; fail "wanted $n pairs: $line"; }
	echo "$line"
	if [ -n "$shadow" ]; then
		[ "$(field ring <<<"$line")" = 0 ] || fail "shadow mode moved data: $line"
		return
	fi
	[ "$n" = 0 ] || [ "$(field busy <<<"$line")" = "$n" ] || fail "not every pair used its ring: $line"
	[ "$n" = 0 ] || [ "$(field ring <<<"$line")" -gt "$(field tcp <<<"$line")" ] ||
		fail "most bytes went by TCP: $line"
}

# A cgroup with the memory controller: prints its folder.
memory_group() { # memory_group NAME
	echo +memory > /sys/fs/cgroup/cgroup.subtree_control
	mkdir -p "/sys/fs/cgroup/$1"
	echo "/sys/fs/cgroup/$1"
}

counter() {
	"$load" stat "$1"
}

# Until the rings of connections that were closed are freed: a cap counts them, too.
no_rings() { # no_rings [SECONDS]
	local end=$((SECONDS + ${1:-60}))
	until [ "$(counter ring_memory_bytes)" = 0 ]; do
		[ "$SECONDS" -lt "$end" ] || fail "memory is left"
		sleep 0.1
	done
}
