# shellcheck shell=bash disable=SC2034
# tests/selftests/lib.sh: a program of the kernel's, on the stock kernel, with the module,
# and with its reads turned into splices (wrap.c). The script that sources this defines
# results, which turns the program's output into lines "ok NAME" and "not ok NAME".

failed=0

# selftests OUT PROGRAM [ARG...]: one run; what it says of failures is kept beside
selftests() {
	local out=$VM_OUT/$1
	shift
	"$@" > "$out.all" 2>&1
	results < "$out.all" | sort -u > "$out"
	echo "# ${out##*/}: $(grep -c '^ok' "$out") pass, $(grep -c '^not ok' "$out") fail" \
		"$(grep '^# spliced' "$out.all")"
}

compare() { # compare NAME STOCK OUT: nothing that the stock kernel passes may fail
	local lost
	lost=$(comm -23 <(grep '^ok' "$VM_OUT/$2") <(grep '^ok' "$VM_OUT/$3"))
	if ! grep -q '^ok' "$VM_OUT/$2"; then
		tail -n 5 "$VM_OUT/$2.all" | sed 's/^/# /'
		echo "not ok selftests/$1: the stock kernel passes none"
		failed=1
	elif [ -n "$lost" ]; then
		sed 's/^ok /# lost: /' <<<"$lost"
		echo "not ok selftests/$1: $(wc -l <<<"$lost") tests fail that pass on the stock kernel"
		failed=1
	else
		echo "ok selftests/$1"
	fi
}

# three_ways NAME PROGRAM [ARG...]
three_ways() {
	local name=$1 calls
	shift
	[ ! -d /sys/module/socksplice ] || rmmod socksplice
	selftests "$name-stock" "$@"
	insmod "$MODULE_KO" splice=1
	selftests "$name-module" "$@"
	SPLICE_READS=1 selftests "$name-spliced" "$@"
	calls=$(socksplice -j stats show | jq .stats.psock_splice_calls)
	socksplice feature set splice off	# the tests after this one begin without
	echo "# splice(2) calls served: $calls"
	compare "$name/with-the-module" "$name-stock" "$name-module"
	compare "$name/reads-by-splice" "$name-stock" "$name-spliced"
	if [ "$calls" -gt 0 ]; then
		echo "ok selftests/$name/served-here"
	else
		echo "not ok selftests/$name/served-here: no splice(2) call came to the module"
		failed=1
	fi
}
