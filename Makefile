# SPDX-License-Identifier: GPL-2.0
# Builds, tests and installs socksplice; `make help` lists the targets.

PREFIX  ?= /usr/local
DESTDIR ?=
UNITDIR ?= $(PREFIX)/lib/systemd/system
KREL    ?= $(shell uname -r)
KDIR    ?= /lib/modules/$(KREL)/build
VERSION := $(shell sed -n 's/^MODULE_VERSION("\(.*\)");/\1/p' module/main.c)
CONF     = $(DESTDIR)/etc/socksplice/policy.toml
CLI     := cli/target/release/socksplice
RELAY   := cli/target/release/socksplice-relay
RELAYCONF = $(DESTDIR)/etc/socksplice/relay.toml
LAYERS  := check ring models unit install lab cli behave fuzz topo psock sosplice relay deb
ARGS    ?=

all: deps cli module	## build the command line and the module for this machine's kernel

help:	## list the targets
	@echo 'make [TARGET] [ARGS=...]'
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' Makefile | expand -t 16
	@echo '  test-LAYER    one layer of the tests: $(LAYERS);'
	@echo '                with ARGS=--full also selftests, suites'

deps:
	@scripts/deps build

cli: deps	## build the command line, with its BPF policy
	@scripts/cargo build --manifest-path cli/Cargo.toml --release --locked

relay: deps	## build the proxy, socksplice-relay
	@scripts/cargo build --manifest-path relay/Cargo.toml --release --locked

module:	## build the module for this machine's kernel
	@if [ -e $(KDIR)/Makefile ]; then \
		$(MAKE) -C module KDIR=$(KDIR); \
	else \
		echo "module: this machine has no headers of its kernel $(KREL), so no module for it" \
			"(install linux-headers-$(KREL); 'make modules' builds for the test kernels)"; \
	fi

sign-module:	## sign module/socksplice.ko, or MODULE=FILE, for Secure Boot: KEY=FILE CERT=FILE
	@KDIR=$(KDIR) scripts/sign-module "$(KEY)" "$(CERT)" "$(or $(MODULE),module/socksplice.ko)"

modules: deps	## build the module for the two kernels that the tests boot
	@scripts/build-module 6.12
	@scripts/build-module 7

test:	## what CI runs: all layers, on both kernels and a part on arm64, without what takes hours
	@tests/run $(ARGS)

test-full:	## the same with the long storms and soaks, the kernel's selftests and other people's suites
	@tests/run --full $(ARGS)

test-next:	## the tests of sockets on the kernels that come, and which functions of theirs have changed
	@tests/next $(ARGS)

test-debug:	## the tests in VMs on two debug kernels, one with KASAN, one with lockdep and kmemleak
	@tests/run --kernel kasan --kernel lockdep $(ARGS) behave fuzz topo psock sosplice debug

test-uml:	## the tests of sockets under KASAN in User Mode Linux, at native speed
	@tests/run --kernel uml $(ARGS) behave fuzz psock

test-%:
	@tests/run $(ARGS) $*

test-fleet: deb	## lint and try the Ansible role and the Helm chart of contrib/
	@tests/deb/ansible
	@tests/deb/chart

check:	## style and lint
	@scripts/check

demo:	## redis, and a mesh-like chain by haproxy and by the relay, over TCP and paired, in a VM: one table
	@demo/run $(ARGS)

bench:	## one report of speed, in VMs: pairs, real programs, sockmap sockets, proxies
	@bench/all $(ARGS)

bench-native:	## the same at native speed, in User Mode Linux: TCP, AF_UNIX, a bare ring, pairs, relays, sockmap
	@bench/uml/run $(ARGS)

# Root installs what the user has built: nothing is compiled but by DKMS.
install:	## install the command line, man pages, completions, unit and the module's source for DKMS
	@[ -x $(CLI) ] || { echo "nothing is built yet: run 'make' first" >&2; exit 1; }
	install -D -m 755 $(CLI) $(DESTDIR)$(PREFIX)/sbin/socksplice
	install -d $(DESTDIR)$(PREFIX)/share/man/man8
	$(CLI) man $(DESTDIR)$(PREFIX)/share/man/man8 >/dev/null
	install -D -m 644 man/so_splice.4 $(DESTDIR)$(PREFIX)/share/man/man4/so_splice.4
	install -D -m 644 man/socksplice.h.3 $(DESTDIR)$(PREFIX)/share/man/man3/socksplice.h.3
	install -D -m 644 include/socksplice.h $(DESTDIR)$(PREFIX)/include/socksplice.h
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(CLI) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/socksplice
	$(CLI) completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_socksplice
	$(CLI) completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/socksplice.fish
	install -d $(DESTDIR)$(UNITDIR)
	for unit in socksplice socksplice-agent; do \
		sed 's|@SBIN@|$(PREFIX)/sbin|' service/$$unit.service.in > $(DESTDIR)$(UNITDIR)/$$unit.service || exit; \
	done
	[ -e $(CONF) ] || install -D -m 644 service/policy.toml $(CONF)
	scripts/dkms install "$(VERSION)" "$(DESTDIR)"

uninstall:	## stop and remove what install put there
	@[ -n "$(DESTDIR)" ] || scripts/retire $(PREFIX)/sbin/socksplice $(UNITDIR)/socksplice.service
	scripts/dkms uninstall "$(VERSION)" "$(DESTDIR)"
	rm -f $(DESTDIR)$(PREFIX)/sbin/socksplice $(filter-out %/socksplice-relay.8,$(wildcard $(DESTDIR)$(PREFIX)/share/man/man8/socksplice*.8)) \
		$(DESTDIR)$(PREFIX)/share/man/man4/so_splice.4 $(DESTDIR)$(PREFIX)/share/man/man3/socksplice.h.3 \
		$(DESTDIR)$(PREFIX)/include/socksplice.h \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/socksplice \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_socksplice \
		$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/socksplice.fish \
		$(DESTDIR)$(UNITDIR)/socksplice.service $(DESTDIR)$(UNITDIR)/socksplice-agent.service
	@if cmp -s service/policy.toml $(CONF); then rm $(CONF) && rmdir --ignore-fail-on-non-empty $(dir $(CONF)); \
	elif [ -e $(CONF) ]; then echo "$(CONF) was changed: it stays"; fi

install-relay:	## install the proxy, its man pages, its units and an example of its file
	@[ -x $(RELAY) ] || { echo "nothing is built yet: run 'make relay' first" >&2; exit 1; }
	install -D -m 755 $(RELAY) $(DESTDIR)$(PREFIX)/sbin/socksplice-relay
	install -D -m 644 man/socksplice-relay.8 $(DESTDIR)$(PREFIX)/share/man/man8/socksplice-relay.8
	install -D -m 644 man/socksplice-relay.toml.5 $(DESTDIR)$(PREFIX)/share/man/man5/socksplice-relay.toml.5
	install -d $(DESTDIR)$(UNITDIR)
	sed 's|@SBIN@|$(PREFIX)/sbin|' service/socksplice-relay.service.in > $(DESTDIR)$(UNITDIR)/socksplice-relay.service
	install -m 644 service/socksplice-relay.socket $(DESTDIR)$(UNITDIR)/socksplice-relay.socket
	[ -e $(RELAYCONF) ] || install -D -m 644 service/socksplice-relay.toml $(RELAYCONF)

uninstall-relay:	## remove what install-relay put there
	rm -f $(DESTDIR)$(PREFIX)/sbin/socksplice-relay $(DESTDIR)$(PREFIX)/share/man/man8/socksplice-relay.8 \
		$(DESTDIR)$(PREFIX)/share/man/man5/socksplice-relay.toml.5 \
		$(DESTDIR)$(UNITDIR)/socksplice-relay.service $(DESTDIR)$(UNITDIR)/socksplice-relay.socket
	@if cmp -s service/socksplice-relay.toml $(RELAYCONF); then rm $(RELAYCONF) && rmdir --ignore-fail-on-non-empty $(dir $(RELAYCONF)); \
	elif [ -e $(RELAYCONF) ]; then echo "$(RELAYCONF) was changed: it stays"; fi

deb: cli relay	## build the Debian packages into build/deb
	@scripts/deb "$(VERSION)"

deb-arm64: deb	## build the package of the command line and the module for arm64, too
	@tests/vm/cross command-line
	@scripts/deb "$(VERSION)" arm64

# The key first, as building takes long.
apt-repo:	## make a signed apt repository of these packages in build/apt-repo: KEY=FINGERPRINT
	@scripts/apt-repo --check "$(KEY)"
	@$(MAKE) -s deb
	@scripts/apt-repo "$(KEY)"

clean:	## remove what was built, but keep what was downloaded
	rm -rf cli/target build/vm build/vm-out build/test build/[0-9]* build/vm-selftest
	@[ ! -e module/config.h ] || $(MAKE) -C module KDIR=$(KDIR) clean

distclean: clean	## remove the downloads too
	rm -rf build

.PHONY: all help deps cli relay module sign-module modules test test-full test-next test-debug test-uml test-fleet check demo bench bench-native install uninstall install-relay uninstall-relay deb deb-arm64 apt-repo clean distclean
