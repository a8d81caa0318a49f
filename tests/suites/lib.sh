# shellcheck shell=bash disable=SC2034
# tests/suites/lib.sh: runs a suite of other people's under several conditions and
# compares, test by test. Sourced by the tests of this folder, in a VM.

set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
failed=0

# go_suites OUT [LIMIT]: Go's own net and net/http tests; the verdict of each in
# $VM_OUT/OUT. A suite that hangs ends after LIMIT (10m), without a verdict on the
# tests that it did not come to.
go_suites() {
	local p log src limit=${2:-}
	src=$(cat build/suites/go.root)/src
	for p in net net/http; do
		log=$VM_OUT/$1-${p#*/}.all
		(
			program=$PWD/build/suites/go-${p#*/}.test
			cd "$src/$p" && HOME=/tmp exec "$program" -test.short -test.v -test.timeout "${limit:-10m}"
		) > "$log" 2>&1
		grep -oE '^--- (PASS|FAIL): [^ ]+' "$log" | sed "s,: ,: $p ,"
	done | sort -u > "$VM_OUT/$1"
	echo "# $1: $(grep -c PASS "$VM_OUT/$1") pass, $(grep -c FAIL "$VM_OUT/$1") fail"
}

# What passed on plain TCP (the run called "plain") and not in run OUT.
lost() { comm -23 <(grep PASS "$VM_OUT/plain") <(grep PASS "$VM_OUT/$1"); }

none_failed() { [ -s "$VM_OUT/$1" ] && ! grep FAIL "$VM_OUT/$1"; }

none_lost() { lost "$1" > "$VM_OUT/lost" && [ ! -s "$VM_OUT/lost" ]; }

counter() { socksplice -j stats show | sed -nE "s/.*\"$1\": *([0-9]+).*/\1/p"; }

# verdict NAME CONDITION...: a command that says whether it is so.
verdict() {
	local name=$1
	shift
	if "$@" > "$VM_OUT/said"; then
		echo "ok $name"
	else
		echo "not ok $name"
		sed 's/^/# /' "$VM_OUT/said"
		failed=1
	fi
}
