// SPDX-License-Identifier: Apache-2.0
/*
 * filter.c - the list of system calls, as a seccomp filter
 *
 * The kernel does not execute a call that is not in the list, or that asks for
 * more than its rule allows.  It sends SIGSYS instead.  The handler prints one
 * line with the call's name and ends the process by the same signal, so that hold
 * starts the next one.  The kernel's own SECCOMP_RET_KILL_PROCESS would be
 * shorter, but the line shows an operator a wrong list at once.  It costs nothing
 * in safety: the forbidden call has no effect either way, the handler runs for one
 * signal, and rt_sigaction() is not in the list, so no other handler can be set.
 * Calls of another architecture, which have other numbers, end the process at
 * once.
 *
 * Names of calls are resolved at start: the handler allocates nothing.
 *
 * libseccomp makes the filter in a child at start; this process only installs it.
 * When an allocation fails, libseccomp (2.5.4) may free records twice, or loop for
 * ever.  Only the child can die of that, and it is logged as any other refusal.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvmm/log.h>
#include <kvmm/sandbox.h>

#define MAX_NAMES	512
#define BUILD_S		20	/* the child ends after this time in any case, */
#define BUILD_CPU_S	1	/* and soon if it loops */

#ifndef SYS_SECCOMP
#define SYS_SECCOMP	1	/* si_code, which older libc does not name */
#endif

const struct sandbox_call sandbox_calls[] = {
#define x(_who, _name, _rule, _why)					\
	{ .who = SANDBOX_##_who, .name = #_name,			\
	  .rule = SANDBOX_RULE_##_rule, .why = _why },
	SANDBOX_CALLS(x)
#undef x
};
const u32 sandbox_nr_calls = ARRAY_SIZE(sandbox_calls);

const char * const sandbox_rule_text[] = {
#define x(name, text) [SANDBOX_RULE_##name] = text,
	SANDBOX_RULES(x)
#undef x
};

static const char *names[MAX_NAMES];

/* The filter that the child made. */
static struct sock_filter program[BPF_MAXINSNS];
static u16 program_len;
static int program_err;	/* there is no filter: the kernel lacks something */

/* ---- forbidden calls ---- */

static void on_sigsys(int sig, siginfo_t *si, void *context)
{
	const u32 nr = (u32)si->si_syscall;
	const char *name = nr < MAX_NAMES && names[nr] ? names[nr] : "unknown";

	if (si->si_code == SYS_SECCOMP)
		pr_err("system call %u (%s) is none of those that it may make, or was made in a way that it may not: ended; report this, --sandbox=log lets it go on meanwhile",
		       nr, name);
	/* SA_RESETHAND: now the signal ends the process. */
	syscall(SYS_tgkill, getpid(), gettid(), sig);
	_exit(128 + sig);
}

static int catch_sigsys(void)
{
	struct sigaction sa = { .sa_sigaction = on_sigsys };
	u32 i;

	for (i = 0; i < MAX_NAMES; i++)
		if (!names[i])
			names[i] = seccomp_syscall_resolve_num_arch(
				SCMP_ARCH_NATIVE, (int)i);
	sa.sa_flags = SA_SIGINFO | SA_RESETHAND | SA_NODEFER;
	return sigaction(SIGSYS, &sa, NULL) ? -errno : 0;
}

/* ---- rules ---- */

static int allow_if(scmp_filter_ctx f, int nr, struct scmp_arg_cmp cmp)
{
	return seccomp_rule_add_array(f, SCMP_ACT_ALLOW, nr, 1, &cmp);
}

static struct scmp_arg_cmp arg_is(unsigned int arg, u64 value)
{
	return (struct scmp_arg_cmp){ arg, SCMP_CMP_EQ, value, 0 };
}

static struct scmp_arg_cmp arg_lacks(unsigned int arg, u64 bits)
{
	return (struct scmp_arg_cmp){ arg, SCMP_CMP_MASKED_EQ, bits, 0 };
}

static int add_call(scmp_filter_ctx f, const struct sandbox_call *c, int nr,
		    pid_t self)
{
	int err;

	switch (c->rule) {
	case SANDBOX_RULE_rdonly:
		return allow_if(f, nr, arg_lacks(!strcmp(c->name, "openat") ?
						 2 : 1,
						 O_ACCMODE | O_CREAT |
						 O_TRUNC));
	case SANDBOX_RULE_noexec:
		return allow_if(f, nr, arg_lacks(2, PROT_EXEC));
	case SANDBOX_RULE_self:
		return allow_if(f, nr, arg_is(0, (u64)self));
	case SANDBOX_RULE_sigkill:
		return allow_if(f, nr, arg_is(1, SIGKILL));
	case SANDBOX_RULE_setname:
		return allow_if(f, nr, arg_is(0, PR_SET_NAME));
	case SANDBOX_RULE_unix:
		return allow_if(f, nr, arg_is(0, AF_UNIX));
	case SANDBOX_RULE_blksize:
		err = allow_if(f, nr, arg_is(1, BLKGETSIZE64));
		return err ? err : allow_if(f, nr, arg_is(1, BLKSSZGET));
	default:
		return seccomp_rule_add_array(f, SCMP_ACT_ALLOW, nr, 0, NULL);
	}
}

static int add_calls(scmp_filter_ctx f, u32 who, pid_t self)
{
	u32 i;
	int err = 0;

	for (i = 0; i < ARRAY_SIZE(sandbox_calls) && !err; i++) {
		const struct sandbox_call *c = &sandbox_calls[i];
		int nr = seccomp_syscall_resolve_name(c->name);

		if (nr == __NR_SCMP_ERROR)
			return -ENOENT;
		/* Below zero: this architecture has no such call. */
		if ((c->who & who) && nr >= 0)
			err = add_call(f, c, nr, self);
	}
	return err;
}

/* ---- made in a child ---- */

/* Return: 0 when the whole filter was written to @out. */
static int program_export(u32 who, bool only_log, pid_t self, int out)
{
	scmp_filter_ctx f = seccomp_init(only_log ? SCMP_ACT_LOG :
					 SCMP_ACT_TRAP);
	int err;

	if (!f)
		return -ENOMEM;
	err = seccomp_attr_set(f, SCMP_FLTATR_ACT_BADARCH,
			       SCMP_ACT_KILL_PROCESS);
	/* A tree instead of a chain, if the library can make one. */
	(void)seccomp_attr_set(f, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (!err)
		err = add_calls(f, who, self);
	return err ? err : seccomp_export_bpf(f, out);
}

/* Read the filter to its end.  Return: its bytes, or a negative errno. */
static ssize_t program_receive(int in)
{
	char *at = (char *)program;
	size_t have = 0;
	ssize_t n;

	do {
		n = read(in, at + have, sizeof(program) - have);
		if (n < 0 && errno != EINTR)
			return -errno;
		have += n > 0 ? (size_t)n : 0;
	} while (n);
	return (ssize_t)have;
}

/* Read the filter; the exit code of the child says whether it is whole. */
static int program_collect(pid_t pid, int in)
{
	const ssize_t bytes = program_receive(in);
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	if (bytes < 0)
		return (int)bytes;
	if (WIFEXITED(status) && WEXITSTATUS(status))
		return -WEXITSTATUS(status);
	if (!WIFEXITED(status) || !bytes ||
	    (size_t)bytes % sizeof(program[0]))
		return -ENOMEM;
	program_len = (u16)((size_t)bytes / sizeof(program[0]));
	return 0;
}

int sandbox_compile(u32 who, bool only_log)
{
	const struct rlimit cpu = { BUILD_CPU_S, BUILD_CPU_S };
	const pid_t self = getpid();
	int ends[2], err;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC))
		return -errno;
	pid = fork();
	if (!pid) {
		/* libc would report the second free to the operator. */
		close(STDERR_FILENO);
		alarm(BUILD_S);
		(void)setrlimit(RLIMIT_CPU, &cpu);
		_exit(-program_export(who, only_log, self, ends[1]));
	}
	err = pid < 0 ? -errno : 0;
	close(ends[1]);
	if (!err)
		err = program_collect(pid, ends[0]);
	close(ends[0]);
	/* sandbox_install() reports it, as other features that are missing. */
	if (err == -EINVAL || err == -EOPNOTSUPP || err == -ENOSYS) {
		program_err = err;
		err = 0;
	}
	return err;
}

int sandbox_install(bool only_log)
{
	const struct sock_fprog prog = {
		.len = program_len, .filter = program,
	};
	long other;
	int err;

	if (!program_len)
		return program_err;
	err = only_log ? 0 : catch_sigsys();
	if (err)
		return err;
	other = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
			SECCOMP_FILTER_FLAG_TSYNC, &prog);
	/* Above zero: a thread that cannot get the filter. */
	return other < 0 ? -errno : other ? -ESRCH : 0;
}
