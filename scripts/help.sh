# shellcheck shell=sh
# scripts/help.sh: each script of the tree sources this, by itself or with scripts/lib.sh.
# If the script's first argument is --help or -h, it prints the comment at the script's
# head and exits with 0. Lines for shellcheck and for tests/run are left out.

case ${1-} in
-h|--help)
	awk 'NR == 1 { next }
		!/^#/ { exit }
		/^# (shellcheck [a-z]*=|shellcheck disable|timeout:|SPDX-)/ { next }
		{ sub(/^# ?/, ""); print }' "$0"
	exit 0
	;;
esac
