# shellcheck shell=bash disable=SC2034
# tests/suites/lib.sh: runs suites and servers of other people's under several
# conditions and compares, test by test. Sourced by the tests of this folder, in a VM.

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

none_lost() { lost "$1" > "$VM_OUT/lost" && ! grep . "$VM_OUT/lost"; }

counter() { socksplice -j stats show | sed -nE "s/.*\"$1\": *([0-9]+).*/\1/p"; }

# What connections that were paired have sent since the test began, and how much of it
# not by ring.
figures() {
	jq -rn --argjson was "$was" --argjson is "$(socksplice -j stats show)" '
		def since(key): $is.stats[key] - $was.stats[key];
		since("ring_bytes") as $ring |
		([$is.stats | keys[] | select(startswith("tcp_bytes_")) | since(.)] | add) as $tcp |
		"\(since("pairs_made")) pairs, \($ring) bytes by ring, \($tcp) by TCP (\(
			100000 * $ring / ([$ring + $tcp, 1] | max) | floor / 1000) % by ring)"'
}
was=$(socksplice -j stats show)

# by_ring BYTES: whether at least so many of them went by ring since the test began.
by_ring() { [ $(($(counter ring_bytes) - $(jq .stats.ring_bytes <<<"$was"))) -ge "$1" ]; }

enroll() { echo "$1" > /sys/module/socksplice/parameters/enroll_all; }

# verdict NAME CONDITION...: a command that says whether it is so.
verdict() {
	local name=$1
	shift
	if "$@" > "$VM_OUT/said"; then
		echo "ok $name"
	else
		echo "not ok $name: $(head -n 20 "$VM_OUT/said" | cut -c 1-200 | paste -sd ';')"
		sed 's/^/# /' "$VM_OUT/said"
		failed=1
	fi
}

# --- servers of other people's, and what is asked of them ---
tmp=/tmp/servers

# check NAME COMMAND...: one test of a run. What it prints is its result, and has to be
# the same each time; what it says to stderr is kept in $VM_OUT/errors.
check() {
	local name=$1 said
	shift
	echo "== $name" >> "$VM_OUT/errors"
	if said=$("$@" 2>> "$VM_OUT/errors"); then said="PASS: $name: $said"; else said="FAIL: $name ($?): $said"; fi
	paste -sd ' ' <<<"$said"
}

# serve PORT COMMAND...: starts a server and waits until it accepts connections.
serve() {
	local port=$1 end=$((SECONDS + 60))
	shift
	"$@" >> "$VM_OUT/servers" 2>&1 < /dev/null &
	servers+=($!)
	until (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do
		[ $SECONDS -lt $end ] || { echo "FAIL: $1 does not accept connections on $port"; return 1; }
		sleep 0.1
	done
}

end_servers() {
	[ ${#servers[@]} = 0 ] || { kill "${servers[@]}"; wait "${servers[@]}"; } 2> /dev/null
	servers=()
}
servers=()

# both NAME BYTES FUNCTION: FUNCTION starts servers and prints the verdict of a check a
# line. It does so on plain TCP and with every connection of the machine paired, and the
# two agree to the letter. In the second run that many bytes at least go by ring.
both() {
	local run
	rm -rf $tmp
	install -d -m 755 $tmp
	for run in plain paired; do
		[ $run = plain ] || enroll 1
		"$3" > "$VM_OUT/$run.all"
		end_servers
		sort "$VM_OUT/$run.all" > "$VM_OUT/$run"
		echo "# $run: $(grep -c PASS "$VM_OUT/$run") pass, $(grep -c FAIL "$VM_OUT/$run") fail"
	done
	enroll 0
	echo "# $1: $(figures)"
	verdict "$1/all_pass_on_tcp" none_failed plain
	verdict "$1/same_results_paired" none_lost paired
	verdict "$1/bytes_by_ring" by_ring "$2"
}

# A page and a file to ask for.
files() {
	[ -e $tmp/root ] || install -d -m 755 $tmp/root
	[ -e $tmp/root/page ] || seq 300 > $tmp/root/page
	[ -e $tmp/root/file ] || openssl enc -aes-128-ctr -K 0 -iv 0 -in /dev/zero 2> /dev/null |
		head -c 3000000 > $tmp/root/file
}

# certificate NAME: $tmp/NAME.crt, signed by itself, and with its key $tmp/NAME.pem
certificate() {
	[ ! -e "$tmp/$1.pem" ] || return 0
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
		-subj "/CN=$1" -keyout "$tmp/$1.pem" -out "$tmp/$1.crt" 2>> "$VM_OUT/errors"
	cat "$tmp/$1.crt" >> "$tmp/$1.pem"
}

# web: nginx on 127.0.0.1, with the files above
#	8080	plain; /copied/ without sendfile, /proxied/ and /unbuffered/ by way of
#		itself, /upload leaves what it is sent in $tmp/body
#	8081	HTTP/2 without TLS; 8443 HTTP/2 with it; 8082 behind the PROXY protocol
web() {
	files
	certificate web
	install -d -m 777 $tmp/body
	cat > $tmp/nginx.conf <<-END
		daemon off;
		worker_processes 2;
		user root;
		pid $tmp/nginx.pid;
		error_log $VM_OUT/nginx.log;
		events { }
		http {
			access_log off;
			client_body_temp_path $tmp/body;
			proxy_temp_path $tmp/proxy;
			fastcgi_temp_path $tmp;
			uwsgi_temp_path $tmp;
			scgi_temp_path $tmp;
			client_max_body_size 100m;
			keepalive_requests 100000;
			sendfile on;
			root $tmp/root;
			ssl_certificate $tmp/web.pem;
			ssl_certificate_key $tmp/web.pem;
			upstream self {
				server 127.0.0.1:8080;
				keepalive 8;
			}
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			server {
				listen 127.0.0.1:8080 backlog=1024;
				location /copied/ { alias $tmp/root/; sendfile off; tcp_nodelay off; }
				location /zipped/ { alias $tmp/root/; gzip on; gzip_types *; }
				location /proxied/ { proxy_pass http://self/; }
				location /unbuffered/ { proxy_pass http://self/; proxy_buffering off; }
				location /upload {
					client_body_in_file_only on;
					proxy_pass http://self/page;
					proxy_method GET;
					proxy_pass_request_body off;
					proxy_set_header Content-Length "";
				}
			}
			server { listen 127.0.0.1:8081 http2; }
			server { listen 127.0.0.1:8082 proxy_protocol; }
			server { listen 127.0.0.1:8443 ssl http2; }
		}
	END
	serve 8080 nginx -e "$VM_OUT/nginx.log" -c $tmp/nginx.conf
}

digest() { sha256sum | cut -c 1-16; }

fetch() { # fetch URL [OPTION...]: status, and the digest of what came
	curl -sSk --max-time 120 --retry 0 -w '%{stderr}%{http_code} %{size_download}\n' "$@" 2> $tmp/status | digest
	[ "${PIPESTATUS[0]}" = 0 ] && cat $tmp/status
}

upload() { # upload URL [OPTION...]: the digest of what the web server then has
	rm -f $tmp/body/*
	curl -sSk --max-time 120 --data-binary @$tmp/root/file "$@" | digest
	digest < $tmp/body/*
}

# load URL OPTION...: of an h2load, requests by outcome, and bytes of data
load() {
	h2load "$@" > $tmp/load || return
	sed -nE '/^(requests|status codes)/p; s/^traffic.*, [^(]*\(([0-9]+)\) data$/\1 bytes/p' $tmp/load
}

# hammer URL OPTION...: of a wrk, what went wrong; all that it says is in $VM_OUT/errors.
# It ends after a time, not after a request: where the first handshakes took all of that,
# nothing has been asked yet, and it is given more.
hammer() {
	local seconds
	for seconds in 1 4 16; do
		wrk "$@" -t 1 --timeout 60 -d $seconds 2>&1 | tee $tmp/wrk >&2
		[ "${PIPESTATUS[0]}" = 0 ] || return
		! grep -E 'Socket errors|Non-2xx' $tmp/wrk || return 0
		grep -q 'Requests/sec: *[1-9]' $tmp/wrk || continue
		echo no errors
		return
	done
	return 1
}
