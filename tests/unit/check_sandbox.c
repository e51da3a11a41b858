// SPDX-License-Identifier: Apache-2.0
/*
 * check_sandbox.c - dropped rights are gone
 *
 * A child drops its rights as kvmm or as swapd does, then tries forbidden
 * calls: each ends it by SIGSYS after a line that names the call.  Allowed
 * calls work.  The page for operators has exactly the lists of the code.
 */
#include <check.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvmm/log.h>
#include <kvmm/sandbox.h>

#include "tests/unit/page.h"

#define UID	4242
#define GID	4343

static char *page;
static char memory[4096];	/* for calls that need a buffer */
static char dir[96];
static char kept[104];		/* beside dir */

static void want_row(const char *row)
{
	ck_assert_row(page, "security.md", row);
}

/* ---- the page ---- */

static const char *who_text(u32 who)
{
	static const char * const names[] = {
		"kvmm-hold", "kvmm", "swapd", "", "kvmm-proc",
		"kvmm-proc with --metrics", "kvmm-proc that mounts", "kvmm with --kv-events",
	};
	static char text[64];
	u32 i;

	if (who == SANDBOX_cuda)
		return "kvmm beside a GPU";
	*text = '\0';
	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (who & BIT(i))
			snprintf(text + strlen(text),
				 sizeof(text) - strlen(text), "%s%s",
				 *text ? ", " : "", names[i]);
	return *text ? text : "-";
}

/* The page also has tables of kvmm-hold, which check_hold.c tests. */
static u32 own_rows(void)
{
	return page_count(page, "| `") - page_count(page, "| `HOLD_") -
	       page_count(page, "| `RLIMIT_");
}

START_TEST(test_doc_calls)
{
	char row[512];
	u32 i;

	page = page_read("security.md");
	for (i = 0; i < sandbox_nr_calls; i++) {
		const struct sandbox_call *c = &sandbox_calls[i];

		snprintf(row, sizeof(row), "| `%s` | %s | %s | %s |\n",
			 c->name, who_text(c->who), sandbox_rule_text[c->rule],
			 c->why);
		want_row(row);
	}
	/* The page has only these rows and those of capabilities. */
	ck_assert_uint_eq(own_rows(),
			  sandbox_nr_calls + sandbox_nr_caps);
}
END_TEST

START_TEST(test_doc_caps)
{
	char row[512], keeps[64];
	u32 i;

	page = page_read("security.md");
	for (i = 0; i < sandbox_nr_caps; i++) {
		const struct sandbox_cap *c = &sandbox_caps[i];

		snprintf(keeps, sizeof(keeps), "%s", who_text(c->keeps));
		snprintf(row, sizeof(row), "| `%s` | %s | %s | %s |\n",
			 c->name, keeps, who_text(c->starts), c->why);
		want_row(row);
	}
}
END_TEST

/* ---- the lists ---- */

static bool may(u32 who, const char *name)
{
	u32 i;

	for (i = 0; i < sandbox_nr_calls; i++)
		if ((sandbox_calls[i].who & who) &&
		    !strcmp(sandbox_calls[i].name, name))
			return true;
	return false;
}

START_TEST(test_list)
{
	/* One of these calls would make the rest of the sandbox useless. */
	static const char * const never[] = {
		"execve", "execveat", "fork", "vfork", "clone", "clone3",
		"ptrace", "process_vm_readv", "process_vm_writev",
		"pidfd_getfd", "kcmp", "socket", "socketpair", "connect",
		"bind", "openat2", "open_by_handle_at", "creat", "mount",
		"unshare", "setns", "chroot", "pivot_root", "bpf",
		"perf_event_open", "userfaultfd", "keyctl", "add_key",
		"init_module", "finit_module", "kexec_load", "reboot",
		"setuid", "setresuid", "setgroups", "capset", "prlimit64",
		"rt_sigaction", "chmod", "fchmod", "chown", "fchown", "link",
		"symlink", "rename", "mknod", "mkdir", "io_uring_setup",
		"memfd_secret", "personality", "modify_ldt", "seccomp",
	};
	u32 i, j;

	for (i = 0; i < ARRAY_SIZE(never); i++)
		ck_assert_msg(!may(SANDBOX_both, never[i]), "%s", never[i]);
	for (i = 0; i < sandbox_nr_calls; i++) {
		const struct sandbox_call *c = &sandbox_calls[i];

		for (j = 0; j < i; j++)
			ck_assert_msg((sandbox_calls[j].who & c->who) == 0 ||
				      strcmp(sandbox_calls[j].name, c->name),
				      "%s is there twice", c->name);
	}
	ck_assert(!may(SANDBOX_kvmm, "io_uring_enter"));
	ck_assert(!may(SANDBOX_swapd, "accept4"));
	ck_assert(!may(SANDBOX_swapd, "unlink"));
	/* kvmm-proc serves requests of all users of the mount, so it opens no file. */
	ck_assert(!may(SANDBOX_proc, "openat") && !may(SANDBOX_proc, "open"));
	ck_assert(!may(SANDBOX_proc, "bind") && !may(SANDBOX_proc, "kill"));
	/*
	 * Any process may connect to the metrics socket, so its server cannot
	 * listen elsewhere.
	 */
	ck_assert(!may(SANDBOX_proc, "accept4") && !may(SANDBOX_proc, "shutdown"));
	ck_assert(!may(SANDBOX_http, "bind") && !may(SANDBOX_http, "listen"));
}
END_TEST

/* ---- children that try ---- */

typedef void (*deed_fn)(void);

struct verdict {
	int	status;
	char	text[4096];
};

static void box_open(u32 who, u32 mode, const char *user)
{
	struct sandbox box = {
		.who = who, .mode = mode, .user = user, .unlinks = dir,
	};

	if (sandbox_prepare(&box) || sandbox_drop(&box) ||
	    sandbox_filter(&box))
		_exit(99);
}

/* Run @deed in a child in the sandbox of @who, and note its end. */
static void try_as(struct verdict *v, u32 who, u32 mode, const char *user,
		   deed_fn deed)
{
	int p[2];
	size_t n = 0;
	ssize_t got;
	pid_t pid;

	ck_assert(!pipe(p));
	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		dup2(p[1], STDERR_FILENO);
		close(p[1]);
		box_open(who, mode, user);
		deed();
		_exit(0);
	}
	close(p[1]);
	while ((got = read(p[0], v->text + n, sizeof(v->text) - 1 - n)) > 0)
		n += (size_t)got;
	v->text[n] = '\0';
	close(p[0]);
	ck_assert_int_eq(waitpid(pid, &v->status, 0), pid);
}

static void do_execve(void)
{
	char *argv[] = { (char *)"true", NULL };

	execv("/bin/true", argv);
}

static void do_fork(void)
{
	if (!fork())
		_exit(0);
}

static void do_thread(void)
{
	syscall(SYS_clone3, memory, 0);
}

static void do_ptrace(void)
{
	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

static void do_socket(void)
{
	socket(AF_INET, SOCK_STREAM, 0);
}

static void do_setuid(void)
{
	syscall(SYS_setuid, 0);
}

static void do_write_file(void)
{
	open("/dev/null", O_WRONLY);
}

static void do_make_file(void)
{
	open("/tmp/box.made", O_RDONLY | O_CREAT, 0600);
}

static void do_mmap_exec(void)
{
	mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS,
	     -1, 0);
}

static void do_mprotect_exec(void)
{
	mprotect(memory, 4096, PROT_READ | PROT_EXEC);
}

static void do_kill_one(void)
{
	kill(1, 0);
}

static void do_pidfd_term(void)
{
	syscall(SYS_pidfd_send_signal, STDIN_FILENO, SIGTERM, NULL, 0);
}

static void do_prctl(void)
{
	prctl(PR_SET_DUMPABLE, 1);
}

static void do_ioctl(void)
{
	ioctl(STDIN_FILENO, TIOCSTI, "x");
}

static void do_io_uring(void)
{
	syscall(SYS_io_uring_setup, 1, memory);
}

static void do_sigaction(void)
{
	signal(SIGSYS, SIG_IGN);
}

static void do_openat2(void)
{
	syscall(SYS_openat2, AT_FDCWD, "/", memory, 24);
}

static void do_memfd(void)
{
	memfd_create("x", 0);
}

static void do_accept(void)
{
	accept4(STDIN_FILENO, NULL, NULL, 0);
}

static void do_unlink(void)
{
	unlink("/tmp/box.made");
}

static void do_read_file(void)
{
	open("/proc/self/status", O_RDONLY);
}

static void do_umount(void)
{
	umount2("/nowhere", 0);
}

static void do_bind(void)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };

	bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&sun,
	     sizeof(sun));
}

static void do_listen(void)
{
	listen(STDIN_FILENO, 1);
}

struct deed {
	u32		who;
	const char	*name;
	deed_fn		fn;
};

static const struct deed deeds[] = {
	{ SANDBOX_all, "execve", do_execve },
	{ SANDBOX_all, "clone", do_fork },
	{ SANDBOX_all, "clone3", do_thread },
	{ SANDBOX_all, "ptrace", do_ptrace },
	{ SANDBOX_all, "socket", do_socket },
	{ SANDBOX_all, "setuid", do_setuid },
	{ SANDBOX_all, "openat", do_write_file },
	{ SANDBOX_all, "openat", do_make_file },
	{ SANDBOX_all, "mmap", do_mmap_exec },
	{ SANDBOX_all, "mprotect", do_mprotect_exec },
	{ SANDBOX_all, "kill", do_kill_one },
	{ SANDBOX_all, "pidfd_send_signal", do_pidfd_term },
	{ SANDBOX_all, "prctl", do_prctl },
	{ SANDBOX_all, "ioctl", do_ioctl },
	{ SANDBOX_all, "io_uring_setup", do_io_uring },
	{ SANDBOX_all, "rt_sigaction", do_sigaction },
	{ SANDBOX_all, "openat2", do_openat2 },
	{ SANDBOX_swapd | SANDBOX_proc, "memfd_create", do_memfd },
	{ SANDBOX_swapd | SANDBOX_proc, "accept4", do_accept },
	{ SANDBOX_swapd | SANDBOX_proc, "unlink", do_unlink },
	{ SANDBOX_proc, "openat", do_read_file },
	{ SANDBOX_proc, "umount2", do_umount },
	{ SANDBOX_proc, "bind", do_bind },
	{ SANDBOX_proc, "listen", do_listen },
};

#define PROC_HTTP	(SANDBOX_proc | SANDBOX_http)

static const u32 boxed_as[] = {
	SANDBOX_kvmm, SANDBOX_swapd, SANDBOX_proc, PROC_HTTP,
};
#define NR_BOXED	ARRAY_SIZE(boxed_as)

static void want_end(const struct verdict *v, const char *name)
{
	char word[64];

	snprintf(word, sizeof(word), "(%s)", name);
	ck_assert_msg(WIFSIGNALED(v->status) && WTERMSIG(v->status) == SIGSYS,
		      "%s: wait status %x: %s", name, v->status, v->text);
	ck_assert_msg(strstr(v->text, word) != NULL, "%s: not named: %s",
		      name, v->text);
}

START_TEST(test_forbidden)
{
	const struct deed *d = &deeds[(u32)_i / NR_BOXED];
	const u32 who = boxed_as[(u32)_i % NR_BOXED];
	struct verdict v;

	/* kvmm-proc with --metrics has the same forbidden calls, but may accept. */
	if (!(d->who & who) || (who == PROC_HTTP && d->fn == do_accept))
		return;
	try_as(&v, who, SANDBOX_ON, NULL, d->fn);
	want_end(&v, d->name);
}
END_TEST

/* In log mode a forbidden call goes on, and the kernel logs it. */
START_TEST(test_log)
{
	struct verdict v;

	try_as(&v, SANDBOX_swapd, SANDBOX_LOG, NULL, do_setuid);
	ck_assert_msg(!v.status, "%x: %s", v.status, v.text);
	try_as(&v, SANDBOX_swapd, SANDBOX_OFF, NULL, do_fork);
	ck_assert_msg(!v.status, "%x: %s", v.status, v.text);
	ck_assert(strstr(v.text, "sandbox: off"));
}
END_TEST

/* Call numbers of another architecture do not evade the filter. */
#ifdef __x86_64__
static void do_x32(void)
{
	syscall(0x40000000 | SYS_getpid);
}

static void do_i386(void)
{
	int nr = 20;	/* getpid */

	__asm__ volatile("int $0x80" : "+a"(nr) : : "memory");
}

START_TEST(test_architecture)
{
	struct verdict v;

	try_as(&v, SANDBOX_kvmm, SANDBOX_ON, NULL, _i ? do_i386 : do_x32);
	/* A kernel without the other architecture may end the child by another signal. */
	ck_assert_msg(WIFSIGNALED(v.status), "%x: %s", v.status, v.text);
}
END_TEST
#endif

/* The filter also covers a thread that was started before it. */
static sem_t boxed;

static void *late_main(void *arg)
{
	sem_wait(&boxed);
	do_socket();
	return NULL;
}

static int other_thread(void)
{
	struct sandbox box = { .who = SANDBOX_kvmm };
	pthread_t t;

	sem_init(&boxed, 0, 0);
	if (sandbox_prepare(&box) || sandbox_drop(&box) ||
	    pthread_create(&t, NULL, late_main, NULL) ||
	    sandbox_filter(&box))
		return 98;
	sem_post(&boxed);
	pthread_join(t, NULL);
	return 0;
}

START_TEST(test_threads)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid)
		_exit(other_thread());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}
END_TEST

/* ---- allowed calls ---- */

#define MUST(cond)							\
do {									\
	if (!(cond)) {							\
		pr_err("%d: %s: %s", __LINE__, #cond, strerror(errno));	\
		_exit(1);						\
	}								\
} while (0)

static void do_allowed(void)
{
	struct timespec ts = { .tv_nsec = 1000 };
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
	char name[128];
	void *m;
	FILE *f;

	f = fopen("/proc/self/status", "re");
	MUST(f && fgets(name, sizeof(name), f));
	rewind(f);
	MUST(fgets(name, sizeof(name), f));
	fclose(f);
	m = malloc(64 << 20);
	MUST(m);
	m = realloc(m, 128 << 20);
	MUST(m);
	free(m);
	m = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(m != MAP_FAILED && !madvise(m, 4096, MADV_DONTDUMP));
	MUST(!munmap(m, 4096));
	MUST(sysconf(_SC_NPROCESSORS_ONLN) > 0 && sysconf(_SC_PHYS_PAGES) > 0);
	MUST(!kill(getpid(), 0) && !nanosleep(&ts, NULL));
	MUST(poll(&p, 1, 0) == 1);
	MUST(!pthread_setname_np(pthread_self(), "boxed"));
	MUST(readlink("/proc/self/fd/2", name, sizeof(name)) > 0);
	abort();
}

static void do_allowed_proc(void)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char *m = malloc(64 << 20);

	strcpy(sun.sun_path, "/nowhere");
	MUST(m && s >= 0);
	free(m);
	MUST(connect(s, (struct sockaddr *)&sun, sizeof(sun)) < 0 &&
	     errno == ENOENT);
	MUST(!close(s) && !pthread_setname_np(pthread_self(), "boxed"));
	abort();
}

static void do_allowed_http(void)
{
	MUST(accept4(-1, NULL, NULL, 0) < 0 && errno == EBADF);
	MUST(shutdown(-1, SHUT_WR) < 0 && errno == EBADF);
	do_allowed_proc();
}

START_TEST(test_allowed)
{
	const u32 who = boxed_as[_i];
	struct verdict v;

	try_as(&v, who, SANDBOX_ON, NULL,
	       who == PROC_HTTP ? do_allowed_http :
	       who == SANDBOX_proc ? do_allowed_proc : do_allowed);
	ck_assert_msg(WIFSIGNALED(v.status) && WTERMSIG(v.status) == SIGABRT,
		      "%x: %s", v.status, v.text);
}
END_TEST

/* ---- Landlock ---- */

static bool has_landlock(void)
{
	if (syscall(SYS_landlock_create_ruleset, NULL, 0, 1) > 0)
		return true;
	printf("note: no Landlock in this kernel: not tried\n");
	return false;
}

static void do_files(void)
{
	char path[128];

	MUST(open("/proc/self/status", O_RDONLY) >= 0);
	MUST(open("/etc/passwd", O_RDONLY) < 0 && errno == EACCES);
	MUST(open("/", O_RDONLY | O_DIRECTORY) < 0 && errno == EACCES);
	/* The maps of a process outside are closed, though the user is the same. */
	MUST(open("/proc/1/maps", O_RDONLY) < 0);
	snprintf(path, sizeof(path), "%s/other/file", dir);
	MUST(open(path, O_RDONLY) < 0 && errno == EACCES);
}

static void do_remove(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/file", dir);
	MUST(!unlink(path));
	MUST(unlink(kept) < 0 && errno == EACCES);
}

static void make_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT, 0600);

	ck_assert_int_ge(fd, 0);
	close(fd);
}

START_TEST(test_landlock)
{
	struct verdict v;
	char path[128];

	if (!has_landlock())
		return;
	snprintf(path, sizeof(path), "%s/other", dir);
	ck_assert(!mkdir(path, 0700));
	snprintf(path, sizeof(path), "%s/other/file", dir);
	make_file(path);
	try_as(&v, SANDBOX_kvmm, SANDBOX_ON, NULL, do_files);
	ck_assert_msg(!v.status, "%x: %s", v.status, v.text);
	try_as(&v, SANDBOX_swapd, SANDBOX_ON, NULL, do_files);
	ck_assert_msg(!v.status, "%x: %s", v.status, v.text);
	snprintf(path, sizeof(path), "%s/file", dir);
	make_file(path);
	make_file(kept);
	try_as(&v, SANDBOX_kvmm, SANDBOX_ON, NULL, do_remove);
	unlink(kept);
	ck_assert_msg(!v.status, "%x: %s", v.status, v.text);
}
END_TEST

/* ---- users and capabilities ---- */

/* The value of a line of /proc/self/status, valid for eight more calls. */
static const char *status_of(const char *key)
{
	static char line[8][256];
	static u32 turn;
	const size_t len = strlen(key);
	FILE *f = fopen("/proc/self/status", "re");
	char *l = line[turn++ % 8];

	MUST(f);
	while (fgets(l, sizeof(line[0]), f))
		if (!strncmp(l, key, len) && l[len] == ':') {
			fclose(f);
			l[strcspn(l, "\n")] = '\0';
			return l + len + 2;
		}
	MUST(!"a line of that name");
	return NULL;
}

static u64 caps_of(const char *key)
{
	return strtoull(status_of(key), NULL, 16);
}

static void say_status(void)
{
	pr_info("uid %s; gid %s; groups %s;", status_of("Uid"),
		status_of("Gid"), status_of("Groups"));
	pr_info("prm %llx eff %llx inh %llx bnd %llx amb %llx nnp %s mode %s;",
		(unsigned long long)caps_of("CapPrm"),
		(unsigned long long)caps_of("CapEff"),
		(unsigned long long)caps_of("CapInh"),
		(unsigned long long)caps_of("CapBnd"),
		(unsigned long long)caps_of("CapAmb"),
		status_of("NoNewPrivs"), status_of("Seccomp"));
}

static void want_text(const struct verdict *v, const char *text)
{
	ck_assert_msg(!v->status, "%x: %s", v->status, v->text);
	ck_assert_msg(strstr(v->text, text) != NULL, "no '%s' in: %s", text,
		      v->text);
}

START_TEST(test_rights)
{
	const gid_t more[] = { 7, 8 };
	struct verdict v;

	if (geteuid()) {
		try_as(&v, SANDBOX_kvmm, SANDBOX_ON, NULL, say_status);
		want_text(&v, "prm 0 eff 0 inh 0");
		want_text(&v, "nnp 1 mode 2;");
		printf("note: not root: users and capabilities not tried\n");
		return;
	}
	ck_assert(!setgroups(2, more));
	try_as(&v, SANDBOX_kvmm, SANDBOX_ON, "4242:4343", say_status);
	want_text(&v, "uid 4242\t4242\t4242\t4242; gid 4343\t4343\t4343\t4343; groups  ;");
	want_text(&v, "prm 20 eff 20 inh 0 bnd 0 amb 0 nnp 1 mode 2;");
	try_as(&v, SANDBOX_swapd, SANDBOX_ON, "4242", say_status);
	want_text(&v, "uid 4242\t4242\t4242\t4242; gid 4242\t4242\t4242\t4242; groups  ;");
	want_text(&v, "prm 0 eff 0 inh 0 bnd 0 amb 0 nnp 1 mode 2;");
	try_as(&v, SANDBOX_swapd, SANDBOX_ON, NULL, say_status);
	want_text(&v, "uid 0\t0\t0\t0;");
	want_text(&v, "prm 0 eff 0 inh 0 bnd 0 amb 0 nnp 1 mode 2;");
	ck_assert(!setgroups(0, NULL));
}
END_TEST

/*
 * hold keeps few capabilities, and its children get no more than the list has;
 * the one to mount only if @gives has it.
 */
static int hold_rights(u32 gives)
{
	u64 keeps = 0, starts = 0;
	u32 i;

	for (i = 0; i < sandbox_nr_caps; i++) {
		if (sandbox_caps[i].starts & gives)
			starts |= BIT_ULL(sandbox_caps[i].nr);
		if (sandbox_caps[i].keeps & SANDBOX_hold)
			keeps |= BIT_ULL(sandbox_caps[i].nr);
	}
	/* A container may lack some capabilities. */
	starts &= caps_of("CapBnd");
	keeps &= starts;
	return !sandbox_keep_bounds(gives) &&
	       !sandbox_keep_caps(SANDBOX_hold, gives) &&
	       caps_of("CapPrm") == starts && caps_of("CapEff") == keeps &&
	       caps_of("CapBnd") == starts ? 0 : 1;
}

START_TEST(test_hold)
{
	int status;
	pid_t pid;

	if (geteuid())
		return;
	fflush(stdout);
	pid = fork();
	if (!pid)
		_exit(hold_rights(_i ? SANDBOX_all | SANDBOX_mount :
				     SANDBOX_both));
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* After the change of user the child still gets the signal of its parent's death. */
static int parent_told(void)
{
	struct sandbox box = { .who = SANDBOX_swapd, .user = "4242" };
	int sig = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (sandbox_prepare(&box) || sandbox_drop(&box))
		return 1;
	prctl(PR_GET_PDEATHSIG, &sig);
	return sig == SIGKILL ? 0 : 2;
}

START_TEST(test_parent)
{
	int status;
	pid_t pid;

	if (geteuid())
		return;
	fflush(stdout);
	pid = fork();
	if (!pid)
		_exit(parent_told());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(test_names)
{
	struct sandbox box = { .who = SANDBOX_kvmm, .dflt = "no-such-user" };

	ck_assert_int_eq(sandbox_find_user(&box), 0);
	ck_assert(!box.change);
	box.user = "no-such-user";
	ck_assert_int_eq(sandbox_find_user(&box), -EINVAL);
	box.user = "4294967295";
	ck_assert_int_eq(sandbox_find_user(&box), -EINVAL);
	box.user = "12:";
	ck_assert_int_eq(sandbox_find_user(&box), -EINVAL);
	box.user = "12:13:14";
	ck_assert_int_eq(sandbox_find_user(&box), -EINVAL);
	box.user = "root";
	if (geteuid()) {
		ck_assert_int_eq(sandbox_find_user(&box), -EINVAL);
		return;
	}
	ck_assert_int_eq(sandbox_find_user(&box), 0);
	ck_assert(!box.change);
	box.user = "daemon";
	ck_assert_int_eq(sandbox_find_user(&box), 0);
	ck_assert(box.change && box.uid == 1 && !strcmp(box.name, "daemon"));
	box.user = "12:13";
	ck_assert_int_eq(sandbox_find_user(&box), 0);
	ck_assert(box.change && box.uid == 12 && box.gid == 13);
}
END_TEST

static TCase *tcase_deeds(void)
{
	TCase *tc = tcase_create("children");

	tcase_add_loop_test(tc, test_forbidden, 0, NR_BOXED * ARRAY_SIZE(deeds));
	tcase_add_test(tc, test_log);
#ifdef __x86_64__
	tcase_add_loop_test(tc, test_architecture, 0, 2);
#endif
	tcase_add_test(tc, test_threads);
	tcase_add_loop_test(tc, test_allowed, 0, ARRAY_SIZE(boxed_as));
	tcase_add_test(tc, test_landlock);
	tcase_add_test(tc, test_rights);
	tcase_add_loop_test(tc, test_hold, 0, 2);
	tcase_add_test(tc, test_parent);
	return tc;
}

int main(void)
{
	struct sandbox can = { .who = SANDBOX_kvmm };
	const char *tmp = getenv("TMPDIR");
	char rm[128];
	Suite *s = suite_create("sandbox");
	TCase *tc = tcase_create("lists");
	SRunner *sr;
	int failed;

	kv_log_init("box", KV_LOG_INFO);
	snprintf(dir, sizeof(dir), "%.64s/box.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(dir))
		return EXIT_FAILURE;
	snprintf(kept, sizeof(kept), "%s.kept", dir);
	tcase_add_test(tc, test_doc_calls);
	tcase_add_test(tc, test_doc_caps);
	tcase_add_test(tc, test_list);
	tcase_add_test(tc, test_names);
	suite_add_tcase(s, tc);
	if (!sandbox_prepare(&can) && can.mode == SANDBOX_ON)
		suite_add_tcase(s, tcase_deeds());
	else
		printf("note: the sandbox is off in this build: not tried\n");
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	snprintf(rm, sizeof(rm), "rm -rf '%s'", dir);
	if (system(rm))
		failed++;
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
