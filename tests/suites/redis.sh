# shellcheck shell=bash
# tests/suites/redis.sh: runs units of Redis's own tests on plain TCP and with every
# connection of the machine paired. Sourced by the redis tests of this folder, in a VM.
# shellcheck source=tests/suites/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

declare -A took	# seconds, of "plain UNIT" and "paired UNIT"

# What tests the limit of an output buffer fills the sockets first, by small messages:
# emulated, with the kernel's own sizes, for longer than a unit may take.
small_sockets() { # small_sockets COMMAND...
	# shellcheck disable=SC2016 # for the shell that is started
	exec unshare --net sh -c 'ip link set lo up
		sysctl -qw net.ipv4.tcp_rmem="4096 65536 65536" net.ipv4.tcp_wmem="4096 16384 65536"
		exec "$@"' - "$@"
}

# A unit that hangs ends, too: paired, a minute after twice what it took on TCP here, at most.
redis_suites() { # redis_suites OUT UNIT...: the verdict of each test
	local unit log with limit began out=$1
	shift
	for unit; do
		log=$VM_OUT/$out-${unit//\//-}.all
		with='exec'
		[ "$unit" != unit/obuf-limits ] || with=small_sockets
		limit=300
		[ "$out" = plain ] || [ "${took[plain $unit]}" -gt 120 ] || limit=$((2 * ${took[plain $unit]} + 60))
		began=$SECONDS
		(cd $tmp && $with timeout $limit tclsh tests/test_helper.tcl --single "$unit" --clients 1 \
			--tags '-slow -cluster' < /dev/null) > "$log" 2>&1
		took[$out $unit]=$((SECONDS - began))
		# it colours its words; names with figures of the run in parentheses
		sed -nE 's/\x1b\[[0-9;]*m//g; s/ \([0-9]+ ms\)$//; s/^\[ok\]: /PASS: /p; s/^\[err\]: /FAIL: /p' "$log" |
			sed "s,: ,: $unit: ,"
	done
}

most_pass() { # most_pass UNIT...: of each some, and of all of them nearly all
	local unit
	for unit; do
		grep -q "PASS: $unit" "$VM_OUT/plain" || { echo "$unit: none"; return 1; }
	done
	[ "$(grep -c PASS "$VM_OUT/plain")" -gt $((20 * $(grep -c FAIL "$VM_OUT/plain"))) ]
}

# redis NAME [--and FUNCTION] UNIT...: the verdicts, called NAME/...; FUNCTION prints more
# results, of what it runs itself, which begin with its name. REDIS_UNITS, in the
# environment, is another choice of units.
redis() {
	local name=$1 more=: out unit chosen
	shift
	if [ "$1" = --and ]; then
		more=$2
		shift 2
	fi
	read -ra chosen <<<"${REDIS_UNITS:-$*}"
	rm -rf $tmp	# of another suite, in the same VM
	cp -r build/suites/redis $tmp
	for out in plain paired; do
		[ $out = plain ] || enroll 1
		{ redis_suites $out "${chosen[@]}"; $more; } > "$VM_OUT/$out.all"
		sort -u "$VM_OUT/$out.all" > "$VM_OUT/$out"
		echo "# $out: $(grep -c PASS "$VM_OUT/$out") pass, $(grep -c FAIL "$VM_OUT/$out") fail"
	done
	enroll 0
	echo "# $name: $(figures)"
	for unit in "${chosen[@]}"; do
		echo "# $unit: ${took[plain $unit]} s on TCP, ${took[paired $unit]} s paired"
	done

	grep FAIL "$VM_OUT/plain" | sed 's/^/# fails on TCP too: /'
	[ "$more" = : ] || chosen+=("$more")
	verdict "$name/most_pass_on_tcp" most_pass "${chosen[@]}"
	verdict "$name/all_pass_paired" none_lost paired
	verdict "$name/bytes_by_ring" by_ring 5000000
}
