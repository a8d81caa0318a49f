# shellcheck shell=bash
# tests/vm/systemd.sh: how a test that wants "vm: --systemd" boots systemd: the host's system, without
# what is started there. systemd empties /tmp when it boots. `within` comes from the test.

systemd_prepare() { # what the test adds to /etc/systemd/system comes after this
	rm -rf /etc/systemd/system
	mkdir -p /etc/systemd/system/multi-user.target.wants
	: > /etc/fstab
	# Without one it would be a first boot, which enables whatever there is.
	echo 0123456789abcdef0123456789abcdef > /etc/machine-id
	systemctl --root=/ mask getty.target systemd-logind.service >/dev/null
	ln -s /lib/systemd/system/multi-user.target /etc/systemd/system/default.target
}

systemd_boot() { # a unit of the host's that cannot run here is listed
	kill -USR1 1
	within 300 systemctl show --property=Version >/dev/null 2>&1
	systemctl is-system-running --wait || systemctl --failed --no-legend
	[ "$(cat /proc/1/comm)" = systemd ]
}
