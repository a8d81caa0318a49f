// SPDX-License-Identifier: GPL-2.0
/*
 * PID 1 of bench/uml/run's kernel: does what the host says, a line at a time on the
 * console, and answers each with one line that begins with "=" (and has the answer)
 * or "!" (and says what failed).
 *
 *	param MODULE NAME VALUE...	writes a module's parameter; answers with it
 *	ns [NAME]			goes into a network namespace of "ip netns", or back
 *	listen ADDR			listens on an IPv4 address of the current namespace
 *	tcp NAME			connects there, and gives both ends to the driver by that
 *					name. A pair's ring opens only if its connection was
 *					made by a program's connect(2)
 *	host FOLDER PROGRAM ARGUMENT...	a program of the host's, with the host's file
 *					system, read-only, as root; answers with the last
 *					line that it printed
 *	pipe SIZE			answers with a file descriptor of a pipe of PID 1's
 *	kmsg [WORD]			answers with the number of faults in the kernel
 *					log, each printed before as a line "# ...", less
 *					warnings that have the WORD
 *	off				ends
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static int first_ns = -1, listener = -1;

static int failed(const char *what)
{
	printf("! %s: %s\n", what, strerror(errno));
	return -1;
}

static int load(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || syscall(SYS_finit_module, fd, "", 0))
		return failed(path);
	close(fd);
	return 0;
}

static void param(char *args)
{
	char *module = strtok(args, " "), *name = strtok(NULL, " "), *value = strtok(NULL, "");
	char path[256], answer[4096];
	ssize_t n;
	int fd;

	if (!module || !name || !value) {
		printf("! param wants a module, a name and a value\n");
		return;
	}
	snprintf(path, sizeof(path), "/sys/module/%s/parameters/%s", module, name);
	fd = open(path, O_RDWR);
	if (fd < 0 || write(fd, value, strlen(value)) < 0) {
		failed(path);
	} else {
		n = pread(fd, answer, sizeof(answer) - 1, 0);
		answer[n > 0 ? n : 0] = '\0';
		printf("= %s%s", answer, strchr(answer, '\n') ? "" : "\n");
	}
	if (fd >= 0)
		close(fd);
}

static void listen_on(const char *address)
{
	struct sockaddr_in at = { .sin_family = AF_INET };

	if (listener >= 0)
		close(listener);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (inet_pton(AF_INET, address, &at.sin_addr) != 1 ||
	    bind(listener, (struct sockaddr *)&at, sizeof(at)) || listen(listener, 1))
		failed("listen");
	else
		printf("=\n");
}

static void tcp(const char *name)
{
	int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), server = -1;
	struct sockaddr_in at;
	socklen_t len = sizeof(at);
	char command[128];

	if (!getsockname(listener, (struct sockaddr *)&at, &len) &&
	    !connect(client, (struct sockaddr *)&at, len))
		server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (server < 0) {
		failed("tcp");
	} else {
		snprintf(command, sizeof(command), "uml_bench run open %s given %d %d", name, client, server);
		param(command);
	}
	close(server);	/* the driver has references of its own */
	close(client);
}

static void host(char *args)
{
	char *folder = strtok(args, " "), *argv[32] = { NULL }, line[1024] = "";
	int n = 0, p[2], status = -1;
	pid_t pid;
	FILE *out;

	for (char *a = strtok(NULL, " "); a && n < 31; a = strtok(NULL, " "))
		argv[n++] = a;
	if (!n || pipe2(p, O_CLOEXEC)) {
		printf("! host wants a folder and a program\n");
		return;
	}
	pid = fork();
	if (!pid) {
		if (!chroot("/host") && !chdir(folder) && dup2(p[1], 1) >= 0 && dup2(p[1], 2) >= 0)
			execvp(argv[0], argv);
		_exit(127);
	}
	close(p[1]);
	out = fdopen(p[0], "r");
	while (out && fgets(line, sizeof(line), out))
		;
	if (out)
		fclose(out);
	waitpid(pid, &status, 0);
	line[strcspn(line, "\n")] = '\0';
	if (status)
		printf("! %s: status %d: %s\n", argv[0], status, line);
	else
		printf("= %s\n", line);
}

static void new_pipe(const char *size)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) || fcntl(p[1], F_SETPIPE_SZ, atoi(size)) < 0)
		failed("pipe");
	else
		printf("= %d\n", p[1]);
}

static void ns_enter(const char *name)
{
	char path[256];
	int fd = first_ns;

	snprintf(path, sizeof(path), "/host/run/netns/%s", name);
	if (*name)
		fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		failed(path);
	else
		printf("=\n");
	if (fd >= 0 && fd != first_ns)
		close(fd);
}

static void kmsg(const char *ignored)
{
	static const char *const faults[] = {
		"WARNING:", "BUG:", "Oops", "Call Trace", "INFO: task", "detected stall",
	};
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK), found = 0;
	bool in_ignored = false;	/* up to its call trace */
	char line[8192];
	ssize_t n;

	while (fd >= 0 && ((n = read(fd, line, sizeof(line) - 1)) > 0 || errno == EPIPE)) {
		if (n <= 0)
			continue;
		line[n] = '\0';
		for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++) {
			if (!strstr(line, faults[i]))
				continue;
			if (in_ignored && strstr(line, "Call Trace")) {
				in_ignored = false;
			} else if (*ignored && strstr(line, "WARNING:") && strstr(line, ignored)) {
				in_ignored = true;
			} else {
				found++;
				printf("# %.*s\n", (int)strcspn(line, "\n"), line);
			}
			break;
		}
	}
	if (fd >= 0)
		close(fd);
	printf("= %d\n", found);
}

static void obey(char *line)
{
	char *word = strsep(&line, " ");

	if (!line)
		line = "";
	if (!strcmp(word, "param"))
		param(line);
	else if (!strcmp(word, "listen"))
		listen_on(line);
	else if (!strcmp(word, "tcp"))
		tcp(line);
	else if (!strcmp(word, "host"))
		host(line);
	else if (!strcmp(word, "ns"))
		ns_enter(line);
	else if (!strcmp(word, "pipe"))
		new_pipe(line);
	else if (!strcmp(word, "kmsg"))
		kmsg(line);
	else
		printf("! no such command: %s\n", word);
}

int main(void)
{
	char line[1024];
	struct termios t;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!tcgetattr(0, &t)) {	/* no echo, no carriage returns */
		cfmakeraw(&t);
		t.c_lflag |= ICANON;
		tcsetattr(0, TCSANOW, &t);
	}
	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mkdir("/dev", 0755);
	mkdir("/host", 0755);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	mount("none", "/host", "hostfs", MS_RDONLY, "/");
	mount("proc", "/host/proc", "proc", 0, NULL);
	mount("sysfs", "/host/sys", "sysfs", 0, NULL);
	mount("tmpfs", "/host/run", "tmpfs", 0, NULL);
	first_ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (!load("/socksplice.ko") && !load("/uml_bench.ko"))
		printf("= ready\n");
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\r\n")] = '\0';
		if (!strcmp(line, "off"))
			break;
		obey(line);
	}
	reboot(RB_POWER_OFF);
	return 1;
}
