# shellcheck shell=bash
# What every script here shares: where things are, how they speak, and a
# private apt configuration that reads other suites without touching the
# machine's own.

# shellcheck source=scripts/help.sh
. "${BASH_SOURCE[0]%/*}/help.sh"

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
BUILD=$ROOT/build
export LC_ALL=C.UTF-8

say() { echo "${0##*/}: $*" >&2; }
die() { say "$*"; exit 1; }

# Every lock waits: two callers that want the same thing share one result.
lock() { # lock NAME
	mkdir -p "$BUILD"
	exec 9>"$BUILD/.lock-$1"
	flock -n 9 || { say "waiting for another run that prepares $1"; flock 9; }
}

# How kbuild is called for a kernel of scripts/kernels: sets the array kbuild.
kbuild_for() { # kbuild_for KERNEL
	kbuild=(make)
	case $1 in
	7|6.12-trixie) kbuild=("$ROOT/scripts/in-trixie" make) ;;
	next)
		# A link is the kernel 7.
		if [ -L "$BUILD/kernels/next" ]; then
			kbuild_for 7
		else
			kbuild=(env "TREE=$BUILD/next-tools" "$ROOT/scripts/in-trixie" make)
		fi
		;;
	6.12-arm64|6.12-16k-arm64|kasan-arm64|lockdep-arm64|kcsan-arm64) kbuild+=(ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu- CC=aarch64-linux-gnu-gcc-12) ;;
	7-arm64) kbuild=("$ROOT/scripts/in-trixie" make ARCH=arm64 CROSS_COMPILE=aarch64-linux-gnu-
		CC=aarch64-linux-gnu-gcc-14) ;;
	uml) kbuild+=(ARCH=um SOCKSPLICE_HOOK_BY_OPS=y) ;;
	esac
}

# A kernel that is built outside its source names the source by an absolute path. After this
# it names it from its own folder, so modules can be built for it when the tree has moved.
make_movable() { # make_movable OBJ SOURCE
	local src
	src=$(realpath --relative-to="$1" "$2")
	ln -sfn "$src" "$1/source"
	cat > "$1/Makefile.new" <<-END
		here := \$(abspath \$(dir \$(lastword \$(MAKEFILE_LIST))))
		export KBUILD_OUTPUT := \$(here)
		include \$(here)/$src/Makefile
	END
	mv "$1/Makefile.new" "$1/Makefile"
}

# The machine's Debian sources with its own release renamed to RELEASE and
# reduced to the SUITES asked for ("" is the release itself, and experimental that suite),
# written where apt_in finds them. Mirrors, proxies and keys stay those of the machine.
apt_root() { # apt_root NAME RELEASE SUITE-SUFFIX...
	local dir=$BUILD/apt/$1 release=$2 own uri suite comp suffix
	shift 2
	# shellcheck disable=SC1091
	own=$(. /etc/os-release && echo "$VERSION_CODENAME")
	mkdir -p "$dir/lists/partial" "$dir/cache/archives/partial"
	[ -s "$dir/sources.list" ] && return
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
	sort -u | while read -r uri suite comp; do
		case $suite in "$own"|"$own"-*) ;; *) continue ;; esac
		[ "$comp" = main ] || continue
		for suffix in "$@"; do
			# backports and experimental live beside the release itself
			if [ "$suite" = "$own$suffix" ] ||
			   { [ "$suffix" = -backports ] && [ "$suite" = "$own" ]; }; then
				echo "deb $(apt_keyring)$uri $release$suffix main"
			elif [ "$suffix" = experimental ] && [ "$suite" = "$own" ]; then
				echo "deb $(apt_keyring)$uri $suffix main"
			fi
		done
	done | sort -u > "$dir/sources.list.new"
	[ -s "$dir/sources.list.new" ] ||
		die "the machine's apt configuration names no Debian mirror for '$own' (see apt-get indextargets)"
	mv "$dir/sources.list.new" "$dir/sources.list"
}

apt_keyring() {
	local k=/usr/share/keyrings/debian-archive-keyring.gpg
	[ ! -r $k ] || echo "[signed-by=$k] "
}

# A NAME that ends in -arm64 prefers arm64's packages; those of amd64 are PACKAGE:amd64.
apt_in() { # apt_in NAME apt-get|apt-cache ARG...
	local dir=$BUILD/apt/$1 tool=$2 foreign=()
	[ "${1%-arm64}" = "$1" ] ||
		foreign=(-o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Architectures::=amd64)
	shift 2
	"$tool" -q ${foreign[@]+"${foreign[@]}"} -o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::State::lists="$dir/lists" -o Dir::Cache="$dir/cache" \
		-o Dir::State::status=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
		-o APT::Sandbox::User=root -o Debug::NoLocking=1 \
		-o Acquire::Languages=none -o Acquire::Retries=3 \
		-o APT::Install-Recommends=0 -o Dpkg::Use-Pty=0 "$@"
}

apt_update() { # apt_update NAME
	say "reading the package lists of $(awk '{print $(NF-1)}' "$BUILD/apt/$1/sources.list" | sort -u | tr '\n' ' ')"
	apt_in "$1" apt-get update >"$BUILD/apt/$1/update.log" 2>&1 || {
		tail -n 5 "$BUILD/apt/$1/update.log" >&2
		die "cannot read the package lists (log: build/apt/$1/update.log)"
	}
}

# Downloads are kept: a run that was interrupted goes on with what it has.
apt_fetch() { # apt_fetch NAME DIR PACKAGE...
	local name=$1 dir=$2
	shift 2
	mkdir -p "$dir"
	say "downloading $*"
	(cd "$dir" && apt_in "$name" apt-get download "$@" >"$dir/download.log" 2>&1) || {
		tail -n 5 "$dir/download.log" >&2
		die "cannot download $*"
	}
}
