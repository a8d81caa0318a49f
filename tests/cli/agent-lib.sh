# shellcheck shell=bash disable=SC2154,SC2317
# tests/cli/agent-lib.sh: what the tests of `socksplice agent` share: how it starts and ends, and
# its log. tests/cli/lib.sh comes first.

log=$tmp/agent.log
: > "$log"

# agent OPTION...: it runs when this returns, with the capabilities that its unit leaves it, and
# no others.
agent() {
	local caps
	caps=$(sed -n 's/^CapabilityBoundingSet=//p' service/socksplice-agent.service.in)
	caps=$(sed 's/CAP_/+/g; s/ /,/g; s/.*/\L&/' <<<"$caps")
	setsid setpriv --no-new-privs --bounding-set="-all,$caps" socksplice agent "$@" >> "$log" 2>&1 &
	echo $! > "$tmp/agent.pid"
	disown
	within 20 agent_runs
}

agent_runs() {
	[ -e /run/socksplice/agent.lock ] && ! flock -sn /run/socksplice/agent.lock true
}

end_agent() { # end_agent [-9]: it has ended when this returns
	kill "$@" "$(cat "$tmp/agent.pid")"
	within 20 eval '! agent_runs'
}

says() { # says PATTERN: a line of the agent's log, within $patience seconds
	within "${patience:-30}" grep -q "$1" "$log"
}

forget() { # what the agent has said so far
	: > "$log"
}

# connect NUMBER: a connection from the container db to the container web makes so many pairs.
# db connects for each line in $out/ask, and adds what comes back to $out/answers.
connect() {
	local before answers
	before=$(counter pairs_made)
	answers=$(wc -l < "$out/answers")
	echo hello > "$out/ask"
	within 20 eval "[ \$(wc -l < $out/answers) -gt $answers ]"
	is "pairs of a connection from db to web" $(($(counter pairs_made) - before)) "$1"
}
