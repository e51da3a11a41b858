// SPDX-License-Identifier: Apache-2.0
/*
 * guard.cpp - launches that are not allowed, and addresses outside allocations
 *
 * Device code follows plain addresses.  Allocations of the stand-in's driver have
 * guard pages around them, so an index too far is a fault of the CPU.  The handler
 * reports it with the kernel and the line.  It also reports traps of the
 * compiler's own checks of device code.  It is installed only while a launch runs,
 * and passes on the faults of other threads.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "kernels/cuda/list.h"
#include "tests/standin/planted.h"
#include "tests/standin/shim_private.h"

#include "tests/gpu/probe_args.h"

#define ALT_STACK	(64u << 10)

static const struct {
	const char *name;
	u32 smem;
} listed[] = {
#define x(name, smem)	{ #name, (smem) },
	CUDA_KERNELS(x)
	PROBE_KERNELS(x)
	PLANTED_KERNELS(x)
#undef x
};

static struct sigaction was_segv, was_bus, was_ill;
static stack_t was_stack;
static u8 alt[ALT_STACK] __attribute__((aligned(64)));
static __thread bool inside;

static u64 pc_of(const void *context)
{
#ifdef __x86_64__
	return (u64)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#else
	(void)context;
	return 0;
#endif
}

/* Ask addr2line about an address of a file; uses only calls that a handler may use. */
static void ask_line(const char *file, u64 offset, char *said, size_t len)
{
	char at[32];
	ssize_t n;
	int p[2];
	pid_t pid;

	*said = '\0';
	snprintf(at, sizeof(at), "%#llx", (unsigned long long)offset);
	if (pipe(p))
		return;
	pid = _Fork();
	if (!pid) {
		dup2(p[1], STDOUT_FILENO);
		close(STDERR_FILENO);
		execlp("addr2line", "addr2line", "-e", file, at, (char *)NULL);
		_exit(1);
	}
	close(p[1]);
	n = pid > 0 ? read(p[0], said, len - 1) : 0;
	said[n > 0 ? n : 0] = '\0';
	said[strcspn(said, " \n")] = '\0';
	close(p[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

/* "file:line" of an instruction, or its address. */
static void line_of(u64 pc, char *line, size_t len)
{
	char said[400];
	Dl_info info;

	snprintf(line, len, "pc %#llx", (unsigned long long)pc);
	if (!dladdr((void *)pc, &info) || !info.dli_fname)
		return;
	ask_line(info.dli_fname, pc - (u64)info.dli_fbase, said, sizeof(said));
	if (*said && !strchr(said, '?'))
		snprintf(line, len, "%s", said);
}

static void on_fault(int sig, siginfo_t *si, void *context)
{
	char line[512];

	if (!inside) {		/* another thread's: restore the old handler */
		sigaction(sig, sig == SIGSEGV ? &was_segv :
			  sig == SIGBUS ? &was_bus : &was_ill, NULL);
		return;
	}
	inside = false;
	line_of(pc_of(context), line, sizeof(line));
	if (sig == SIGILL)
		shim_die({}, "an address that is not aligned to its type, an index outside of a local array, or a shift by too much: %s",
			 line);
	if (shim_stack_full((u64)si->si_addr))
		shim_die({}, "the stack is full: %s", line);
	shim_die({}, "global memory at %p is outside of every allocation: %s",
		 si->si_addr, line);
}

static void check_launch(const struct shim_launch *l)
{
	const struct shim_kernel *k = l->kernel;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(listed); i++)
		if (!strcmp(listed[i].name, k->name))
			break;
	if (i == ARRAY_SIZE(listed))
		shim_die({}, "the kernel is not in list.h");
	if (l->threads > k->max_threads)
		shim_die({}, "launched with %u threads: KERNEL() says %u",
			 l->threads, k->max_threads);
	if (l->smem > listed[i].smem)
		shim_die({}, "launched with %u bytes of shared memory: list.h says %u",
			 l->smem, listed[i].smem);
	if (l->smem > l->smem_max)
		shim_die({}, "launched with %u bytes of shared memory: %u without cuFuncSetAttribute()",
			 l->smem, l->smem_max);
	if (k->static_bytes + l->smem > SHIM_SMEM_MAX)
		shim_die({}, "launched with %u + %u bytes of shared memory: %u at most",
			 k->static_bytes, l->smem, SHIM_SMEM_MAX);
}

void shim_guard_begin(const struct shim_launch *l)
{
	struct sigaction sa = {};
	stack_t ss = {};

	shim_block = {};
	shim_now.me = 0;
	check_launch(l);
	ss.ss_sp = alt;
	ss.ss_size = sizeof(alt);
	sigaltstack(&ss, &was_stack);
	sa.sa_sigaction = on_fault;
	sa.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
	sigaction(SIGSEGV, &sa, &was_segv);
	sigaction(SIGBUS, &sa, &was_bus);
	sigaction(SIGILL, &sa, &was_ill);
	inside = true;
}

void shim_guard_end(void)
{
	inside = false;
	sigaction(SIGSEGV, &was_segv, NULL);
	sigaction(SIGBUS, &was_bus, NULL);
	sigaction(SIGILL, &was_ill, NULL);
	sigaltstack(&was_stack, NULL);
}
