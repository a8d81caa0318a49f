// SPDX-License-Identifier: GPL-2.0
/*
 * PID 1 of a test VM.
 *
 * The host's root file system comes over 9p, or by User Mode Linux's hostfs, read-only,
 * under an overlay in memory: everything that the host has installed can be used,
 * anything may be written, nothing of it stays. The project folder is the host's own,
 * read-only. A VM of another architecture has another root file system. The project folder
 * then is a share of its own, and the job's "programs" is a folder of what was built for it.
 * Three virtio-serial ports lead out, so that what a command prints, what the
 * kernel prints (on the serial console) and the verdict never mix. User Mode Linux has
 * none: there the first two are files in the out folder, and ctl a serial line.
 *
 *	out, err	the command's stdout and stderr, byte for byte
 *	ctl		to the host: "ready SECONDS", then "exit N", "signal N" or
 *			"lab MESSAGE"; from the host: 'd' asks for a dump of what
 *			every task is waiting for, on the kernel console, and
 *			"dumped" after it
 *
 * With systemd=1 in the job, PID 1 forks: its child does all of the above, and PID 1
 * becomes the machine's systemd when it gets SIGUSR1, so that COMMAND can prepare the
 * system before it is booted.
 *
 * What to run is in the out folder's .job: NUL-terminated strings "key=value",
 * then an empty one, then the argument vector. The kernel command line names
 * only that folder and the project, as this is all that the mounts need.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static int ctl = -1;
static int user_mode;	/* in User Mode Linux, by the kernel command line */
static char job[256 * 1024];
static char *envs[256];
static unsigned int nr_envs;

static void say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vdprintf(ctl, fmt, ap);
	va_end(ap);
}

static void __attribute__((noreturn)) power_off(void)
{
	sync();
	reboot(RB_POWER_OFF);
	for (;;)
		pause();
}

/* The lab itself failed: the host prints the message and the log. */
static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *fmt, ...)
{
	int saved = errno;
	char buf[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	fprintf(stderr, "init: %s: %s\n", buf, strerror(saved));
	say("lab %s: %s\n", buf, strerror(saved));
	power_off();
}

static void mkdirs(const char *path)
{
	char buf[4096], *p;

	snprintf(buf, sizeof(buf), "%s", path);
	for (p = buf + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		mkdir(buf, 0755);
		*p = '/';
	}
	mkdir(buf, 0755);
}

static void do_mount(const char *src, const char *dst, const char *type,
		     unsigned long flags, const char *data)
{
	mkdirs(dst);
	if (mount(src, dst, type, flags, data))
		die("cannot mount %s on %s", type ? type : src, dst);
}

static void bind_ro(const char *src, const char *dst)
{
	do_mount(src, dst, NULL, MS_BIND | MS_REC, NULL);
	if (mount(NULL, dst, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL))
		die("cannot make %s read-only", dst);
}

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int ret = -1;

	if (fd >= 0) {
		ret = write(fd, text, strlen(text)) < 0 ? -1 : 0;
		close(fd);
	}
	return ret;
}

static void load_module(const char *path, const char *params)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		die("cannot open %s", path);
	if (syscall(SYS_finit_module, fd, params, 0) && errno != EEXIST)
		die("cannot load %s (see the kernel log)", path);
	close(fd);
}

/* The initramfs holds the modules that the mounts need, in loading order. */
static void load_boot_modules(void)
{
	char path[64];
	int i;

	for (i = 0; i < 100; i++) {
		snprintf(path, sizeof(path), "/mods/%02d.ko", i);
		if (access(path, R_OK))
			return;
		load_module(path, "");
	}
}

static char *cmdline_arg(const char *key)
{
	static char line[4096];
	char copy[4096], *p;
	size_t n = strlen(key);
	FILE *f;

	if (!line[0]) {
		f = fopen("/proc/cmdline", "re");
		if (!f || !fgets(line, sizeof(line), f))
			die("cannot read /proc/cmdline");
		fclose(f);
	}
	snprintf(copy, sizeof(copy), "%s", line);
	for (p = strtok(copy, " \n"); p; p = strtok(NULL, " \n"))
		if (!strncmp(p, key, n) && p[n] == '=')
			return strdup(p + n + 1);
	return NULL;
}

/* %20 and the like: the kernel command line is split at blanks. */
static char *unescape(char *s)
{
	char *in = s, *out = s;
	unsigned int c;

	if (!s)
		die("the kernel command line lacks a folder");
	while (*in) {
		if (*in == '%' && sscanf(in + 1, "%2x", &c) == 1) {
			*out++ = c;
			in += 3;
		} else {
			*out++ = *in++;
		}
	}
	*out = '\0';
	return s;
}

static int open_port(const char *name)
{
	char path[512], buf[64];
	struct dirent *e;
	int fd = -1, n, i;
	DIR *d;

	/* ports appear when the device's control queue has told their names */
	for (i = 0; i < 1000 && fd < 0; i++) {
		d = opendir("/sys/class/virtio-ports");
		while (d && (e = readdir(d))) {
			snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", e->d_name);
			n = open(path, O_RDONLY | O_CLOEXEC);
			if (n < 0)
				continue;
			memset(buf, 0, sizeof(buf));
			if (read(n, buf, sizeof(buf) - 1) < 0)
				buf[0] = '\0';
			close(n);
			buf[strcspn(buf, "\n")] = '\0';
			if (strcmp(buf, name))
				continue;
			snprintf(path, sizeof(path), "/dev/%s", e->d_name);
			fd = open(path, O_RDWR | O_CLOEXEC);
		}
		if (d)
			closedir(d);
		if (fd < 0)
			usleep(10000);
	}
	if (fd < 0)
		die("no virtio-serial port '%s'", name);
	return fd;
}

/* What goes through must arrive as it is. */
static int open_line(const char *path)
{
	struct termios t;
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY);

	if (fd < 0 || tcgetattr(fd, &t))
		die("cannot open %s", path);
	cfmakeraw(&t);
	if (tcsetattr(fd, TCSANOW, &t))
		die("cannot set up %s", path);
	return fd;
}

static int open_output(const char *folder, const char *name)
{
	char path[4200];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	if (fd < 0)
		die("cannot open %s", path);
	return fd;
}

static void loopback_up(void)
{
	struct ifreq ifr = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &ifr))
		die("cannot bring up lo");
	close(fd);
}

/* mknod: a symbolic link of the host's /dev is not in devtmpfs. */
static void populate_dev(void)
{
	do_mount("devpts", "/dev/pts", "devpts", 0, "ptmxmode=666,mode=620");
	do_mount("shm", "/dev/shm", "tmpfs", 0, "mode=1777");
	if (symlink("/proc/self/fd", "/dev/fd") ||
	    symlink("fd/0", "/dev/stdin") ||
	    symlink("fd/1", "/dev/stdout") ||
	    symlink("fd/2", "/dev/stderr"))
		die("cannot populate /dev");
}

static void read_job(const char *out)
{
	char path[4096];
	ssize_t n, len = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/.job", out);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		die("cannot open %s", path);
	while ((n = read(fd, job + len, sizeof(job) - 2 - len)) > 0)
		len += n;
	if (len >= (ssize_t)sizeof(job) - 2)
		die("the command is too long");
	close(fd);
}

static const char *job_get(const char *key, const char *otherwise)
{
	size_t n = strlen(key);
	char *p;

	for (p = job; *p; p += strlen(p) + 1)
		if (!strncmp(p, key, n) && p[n] == '=')
			return p + n + 1;
	return otherwise;
}

static char **job_argv(void)
{
	static char *argv[4096];
	unsigned int i = 0;
	char *p = job;

	for (; *p; p += strlen(p) + 1)
		if (!strncmp(p, "env:", 4) && nr_envs < 250)
			envs[nr_envs++] = p + 4;
	/* an argument may be empty, so their number is given */
	for (p++; i < (unsigned int)atoi(job_get("argc", "0")) && i < 4095; p += strlen(p) + 1)
		argv[i++] = p;
	return argv;
}

static int run(char *const argv[])
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		execvp(argv[0], argv);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		return -1;
	return status;
}

static void load_socksplice(void)
{
	const char *ko = job_get("module", "");
	const char *deps = job_get("depends", "");
	char buf[1024], *argv[32] = { "modprobe", "-a" };
	int n = 2;
	char *p;

	if (!*ko)
		return;
	snprintf(buf, sizeof(buf), "%s", deps);
	for (p = strtok(buf, ","); p && n < 31; p = strtok(NULL, ","))
		argv[n++] = p;
	if (n > 2 && run(argv))
		die("cannot load what the module depends on: %s", deps);
	load_module(ko, job_get("params", ""));
	if (!access("/sys/kernel/btf/vmlinux", R_OK) && access("/sys/kernel/btf/socksplice", R_OK))
		die("the kernel did not take the module's BTF: no BPF program can call it");
}

static void mount_host(const char *tag, const char *folder, const char *dst,
		       unsigned long flags, const char *cache)
{
	char options[256];

	if (user_mode) {
		do_mount("none", dst, "hostfs", flags, folder);
		return;
	}
	snprintf(options, sizeof(options),
		 "trans=virtio,version=9p2000.L,cache=%s,msize=512000,access=any", cache);
	do_mount(tag, dst, "9p", flags, options);
}

static void setup_root(char *project, char *out)
{
	char from[4200], to[4200];

	mount_host("root", "/", "/lower", MS_RDONLY, "loose");
	do_mount("tmpfs", "/upper", "tmpfs", 0, "mode=755");
	mkdirs("/upper/up");
	mkdirs("/upper/work");
	do_mount("overlay", "/new", "overlay", 0,
		 "lowerdir=/lower,upperdir=/upper/up,workdir=/upper/work,xino=off");
	do_mount("tmpfs", "/new/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777");
	do_mount("tmpfs", "/new/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755");
	mkdirs("/new/run/lock");
	snprintf(from, sizeof(from), "/lower%s", project);
	snprintf(to, sizeof(to), "/new%s", project);
	if (cmdline_arg("vm.project_apart"))
		mount_host("project", project, to, MS_RDONLY, "loose");
	else
		bind_ro(from, to);
	snprintf(to, sizeof(to), "/new%s", out);
	mount_host("out", out, to, 0, "mmap");
	do_mount("/dev", "/new/dev", NULL, MS_MOVE, NULL);
	do_mount("/sys", "/new/sys", NULL, MS_MOVE, NULL);
	do_mount("/proc", "/new/proc", NULL, MS_MOVE, NULL);

	/* as switch_root does, but what the initramfs holds is too small to free */
	if (chdir("/new") || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
		die("cannot enter the root file system");

	populate_dev();
	do_mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, NULL);
	do_mount("bpf", "/sys/fs/bpf", "bpf", 0, "mode=700");
	do_mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	do_mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL);
	mkdirs("/run/netns");
	mkdirs("/run/shm");
}

/* Children of the root cgroup get the controllers that tests limit by. */
static void setup_system(const char *krel_modules, const char *krel)
{
	char path[512];

	write_file("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	write_file("/sys/fs/cgroup/cgroup.subtree_control", "+cpu");
	write_file("/sys/fs/cgroup/cgroup.subtree_control", "+pids");
	snprintf(path, sizeof(path), "/lib/modules/%s", krel);
	bind_ro(krel_modules, path);
	sethostname("vm", 2);
	loopback_up();
}

/* Tests find what was built for this architecture where the host's own programs lie. */
static void bind_programs(const char *programs, const char *project)
{
	char from[4200], to[4200];
	struct dirent *e;
	DIR *d = *programs ? opendir(programs) : NULL;

	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(from, sizeof(from), "%s/%s", programs, e->d_name);
		snprintf(to, sizeof(to), "%s/build/%s", project, e->d_name);
		if (mount(from, to, NULL, MS_BIND, NULL))
			die("cannot mount %s on %s", from, to);
	}
	if (d)
		closedir(d);
}

static void dump_tasks(void)
{
	char path[300], buf[4096];
	struct dirent *e;
	DIR *d = opendir("/proc");
	FILE *log = fopen("/dev/kmsg", "we");
	FILE *f;

	if (!log)
		return;
	setvbuf(log, NULL, _IOLBF, 0);
	write_file("/proc/sysrq-trigger", "l");
	while (d && (e = readdir(d))) {
		if (e->d_name[0] < '0' || e->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
		f = fopen(path, "re");
		if (!f)
			continue;
		memset(buf, 0, sizeof(buf));
		if (fread(buf, 1, sizeof(buf) - 1, f) == 0) {
			fclose(f);
			continue;	/* a kernel thread */
		}
		fclose(f);
		fprintf(log, "<6>vm: task %s %.80s\n", e->d_name, buf);
		snprintf(path, sizeof(path), "/proc/%s/stack", e->d_name);
		f = fopen(path, "re");
		while (f && fgets(buf, sizeof(buf), f))
			fprintf(log, "<6>vm:   %.200s", buf);
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	write_file("/proc/sysrq-trigger", "w");
	fclose(log);
}

static void copy_some(int from, int to)
{
	static char buf[65536];
	ssize_t n, w, off;

	while ((n = read(from, buf, sizeof(buf))) > 0)
		for (off = 0; off < n; off += w) {
			w = write(to, buf + off, n - off);
			if (w < 0 && errno == EINTR)
				w = 0;
			if (w < 0)
				die("cannot write to the host");
		}
}

static pid_t start(char **argv, const int out[2], const int err[2], const char *dir)
{
	struct rlimit nofile = { 1 << 20, 1 << 20 };
	struct timespec now;
	sigset_t none;
	pid_t pid;
	int null;

	pid = fork();
	if (pid < 0)
		die("cannot fork");
	if (pid == 0) {
		setsid();
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		setrlimit(RLIMIT_NOFILE, &nofile);
		null = open("/dev/null", O_RDONLY);
		dup2(null, 0);
		close(null);
		dup2(out[1], 1);
		dup2(err[1], 2);
		if (chdir(dir)) {
			perror(dir);
			_exit(126);
		}
		environ = envs;
		execvp(argv[0], argv);
		fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
		_exit(errno == ENOENT ? 127 : 126);
	}
	clock_gettime(CLOCK_BOOTTIME, &now);
	say("ready %ld.%02ld\n", (long)now.tv_sec, now.tv_nsec / 10000000);
	return pid;
}

/* Returns in the child, which lives outside of all that systemd starts. */
static void leave_pid1_to_systemd(void)
{
	char *const argv[] = { "/lib/systemd/systemd", "--show-status=no", "--log-target=kmsg",
			       NULL };
	char *const env[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "TERM=dumb", NULL };
	sigset_t mask;
	pid_t child, pid;

	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	sigaddset(&mask, SIGCHLD);
	sigprocmask(SIG_BLOCK, &mask, NULL);
	child = fork();
	if (child < 0)
		die("cannot fork");
	if (child == 0)
		return;
	while (sigwaitinfo(&mask, NULL) != SIGUSR1)
		while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
			if (pid == child)
				power_off();
	sigprocmask(SIG_UNBLOCK, &mask, NULL);
	execve(argv[0], argv, env);
	die("cannot run %s", argv[0]);
}

int main(void)
{
	int out[2], err[2], port_out, port_err, sig, st, status = 0;
	char *project, *outdir, **argv;
	int done = 0;
	sigset_t mask;
	pid_t pid, p;
	char c;

	do_mount("proc", "/proc", "proc", 0, NULL);
	do_mount("sysfs", "/sys", "sysfs", 0, NULL);
	mkdirs("/dev");
	/* the kernel may have mounted it for the initramfs already */
	mount("devtmpfs", "/dev", "devtmpfs", 0, "mode=755");
	ctl = open("/dev/console", O_RDWR | O_CLOEXEC);
	user_mode = cmdline_arg("vm.user_mode") != NULL;
	ctl = user_mode ? open_line("/dev/ttyS0") : open_port("ctl");
	project = unescape(cmdline_arg("vm.project"));
	outdir = unescape(cmdline_arg("vm.out"));
	load_boot_modules();
	port_out = user_mode ? -1 : open_port("out");
	port_err = user_mode ? -1 : open_port("err");
	setup_root(project, outdir);
	if (user_mode) {
		port_out = open_output(outdir, "stdout");
		port_err = open_output(outdir, "stderr");
	}
	read_job(outdir);
	argv = job_argv();
	if (!argv[0])
		die("no command");
	environ = envs;
	setup_system(job_get("modules", ""), job_get("krel", ""));
	bind_programs(job_get("programs", ""), project);
	load_socksplice();
	if (atoi(job_get("systemd", "0")))
		leave_pid1_to_systemd();

	sigfillset(&mask);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sig = signalfd(-1, &mask, SFD_CLOEXEC);
	if (sig < 0 || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
		die("cannot make the command's pipes");
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	fcntl(err[0], F_SETFL, O_NONBLOCK);
	/* a restart by ctrl-alt-del or a lost init is no way to end a test */
	reboot(RB_DISABLE_CAD);
	pid = start(argv, out, err, project);

	while (!done) {
		struct signalfd_siginfo si;
		struct pollfd fds[] = {
			{ .fd = sig, .events = POLLIN },
			{ .fd = out[0], .events = POLLIN },
			{ .fd = err[0], .events = POLLIN },
			{ .fd = ctl, .events = POLLIN },
		};

		if (poll(fds, 4, -1) < 0)
			continue;
		if (fds[0].revents) {
			if (read(sig, &si, sizeof(si)) < 0)
				die("cannot read signals");
			while ((p = waitpid(-1, &st, WNOHANG)) > 0)
				if (p == pid) {
					status = st;
					done = 1;
				}
		}
		copy_some(out[0], port_out);
		copy_some(err[0], port_err);
		if ((fds[3].revents & POLLIN) && read(ctl, &c, 1) == 1 && c == 'd') {
			dump_tasks();
			say("dumped\n");
		}
	}
	if (WIFEXITED(status))
		say("exit %d\n", WEXITSTATUS(status));
	else
		say("signal %d\n", WTERMSIG(status));
	power_off();
}
