// SPDX-License-Identifier: Apache-2.0
/*
 * step_trace.c - a process that is ended at a chosen instruction
 *
 * Stepping costs tens of microseconds an instruction, and a scene has some
 * hundred thousand of them, so only a short part of a run is stepped.  Most
 * addresses occur once in a phase: a trap there stops the run at that point of
 * the trace.  Such an address is an anchor.  Points in loops are stepped to
 * from the last anchor before them.
 *
 * Traced processes are forked from this one and never call execve(), so
 * addresses are the same in all of them and their text can be read here.  A
 * repeated instruction counts once.  Waiting differs from run to run, as a
 * client sleeps for different times: a run that misses its point is stopped
 * before the next phase.
 *
 * A store to memory that the daemon sees is known by its effect: the first run
 * compares the used part of segment C after each step.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <uapi/kvmm.h>

#include "tests/integration/harness.h"
#include "tests/integration/step_trace.h"

#define SQ_OFF		256u		/* of entries in segment C */
#define SQ_ENTRIES	256u
#define WATCHED		(SQ_OFF + SQ_ENTRIES * 64u + (16u << 10))
#define SEEN_SLOTS	(1u << 17)	/* addresses of one phase */
#define INSN_SYSCALL	0x050f
#define CALL_STOP	(SIGTRAP | 0x80)

#ifdef __x86_64__

/* ---- one process ---- */

static u64 pc_get(pid_t pid)
{
	return (u64)ptrace(PTRACE_PEEKUSER, pid,
			   offsetof(struct user_regs_struct, rip), NULL);
}

static void pc_set(pid_t pid, u64 pc)
{
	ptrace(PTRACE_POKEUSER, pid, offsetof(struct user_regs_struct, rip),
	       pc);
}

/*
 * Go on until the next stop.
 * Return: the signal that stopped the process; 0: it ended.
 */
static int go(struct step_victim *v, long request)
{
	int status, sig = 0;

	for (;;) {
		if (ptrace((enum __ptrace_request)request, v->pid, NULL, sig))
			return 0;
		if (waitpid(v->pid, &status, __WALL) != v->pid ||
		    !WIFSTOPPED(status)) {
			v->pid = 0;
			return 0;
		}
		sig = WSTOPSIG(status);
		if (sig == SIGTRAP || sig == CALL_STOP)
			return sig;
		/* Deliver a signal of the daemon, or a fault of the process. */
	}
}

static void victim_run(struct step_page *p, const char *socket, u32 salt)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		_exit(1);
	raise(SIGSTOP);
	step_scene(p, socket, salt);
	_exit(0);
}

void step_start(struct step_victim *v, struct step_page *p, const char *socket,
		u32 salt)
{
	int status;

	memset(p, 0, sizeof(*p));
	v->p = p;
	v->pid = fork();
	ck_assert_int_ge(v->pid, 0);
	if (!v->pid)
		victim_run(p, socket, salt);
	ck_assert_int_eq(waitpid(v->pid, &status, __WALL), v->pid);
	ck_assert(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	ck_assert_int_eq(ptrace(PTRACE_SETOPTIONS, v->pid, NULL,
				PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD), 0);
}

void step_kill(struct step_victim *v)
{
	if (!v->pid)
		return;
	kill(v->pid, SIGKILL);
	while (waitpid(v->pid, NULL, __WALL) < 0 && errno == EINTR)
		;
	v->pid = 0;
}

bool step_was_killed(struct step_victim *v)
{
	int status = 0;

	if (!v->pid || waitpid(v->pid, &status, __WALL | WNOHANG) != v->pid ||
	    !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		return false;
	v->pid = 0;
	return true;
}

void step_release(struct step_victim *v)
{
	ptrace(PTRACE_CONT, v->pid, NULL, 0);
}

const char *step_forbidden(void)
{
	static char why[128];
	struct step_victim v;
	int status = 0, sig = 0;

	v.pid = fork();
	if (!v.pid) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			_exit(errno);
		raise(SIGSTOP);
		_exit(0);
	}
	if (v.pid > 0 && waitpid(v.pid, &status, 0) == v.pid &&
	    WIFSTOPPED(status)) {
		sig = go(&v, PTRACE_SINGLESTEP);
		status = EIO << 8;
		step_kill(&v);
	}
	if (sig == SIGTRAP)
		return NULL;
	snprintf(why, sizeof(why), "ptrace cannot step a process here: %s",
		 strerror(WEXITSTATUS(status)));
	return why;
}

bool step_to_phase(struct step_victim *v, u32 phase)
{
	WRITE_ONCE(v->p->stop_mask, 1u << phase);
	if (go(v, PTRACE_CONT) != SIGTRAP)
		return false;
	WRITE_ONCE(v->p->stop_mask, 0);
	return true;
}

bool step_to_call(struct step_victim *v)
{
	int sig;

	do {
		sig = go(v, PTRACE_SYSCALL);
	} while (sig && sig != CALL_STOP);
	return sig;
}

bool step_past_call(struct step_victim *v, long nr)
{
	const size_t at = offsetof(struct user_regs_struct, orig_rax);

	while (step_to_call(v))
		if (ptrace(PTRACE_PEEKUSER, v->pid, at, NULL) == nr)
			return step_to_call(v);
	return false;
}

int step_wait(struct step_victim *v)
{
	int status = 0;

	ck_assert_int_eq(waitpid(v->pid, &status, __WALL), v->pid);
	v->pid = 0;
	return status;
}

/* ---- learning ---- */

/**
 * struct learner - state while a scene is stepped through
 * @old:   segment C before the last step
 * @now:   segment C after it
 * @tail:  ring entries read so far
 * @seen:  addresses of this phase
 * @cap:   room for points
 */
struct learner {
	struct step_trace	*t;
	struct step_victim	*v;
	char			*old;
	char			*now;
	u32			tail;
	u64			*seen;
	u32			cap;
};

/* Copy the used part of segment C; false if there is none yet. */
static bool look_at_c(struct learner *l)
{
	struct iovec here = { .iov_base = l->now, .iov_len = WATCHED };
	struct iovec there = { .iov_base = (void *)READ_ONCE(l->v->p->seg_c),
			       .iov_len = WATCHED };

	return there.iov_base &&
	       process_vm_readv(l->v->pid, &here, 1, &there, 1, 0) == WATCHED;
}

/* Note the requests published since the last step. */
static void note_ops(struct learner *l)
{
	const struct kvmm_client_ctl *ctl = (const void *)l->now;
	const struct kvmm_sqe *sqe = (const void *)(l->now + SQ_OFF);

	for (; l->tail != ctl->sq_tail; l->tail++)
		l->t->ops |= 1u << sqe[l->tail % SQ_ENTRIES].op;
}

/* Did the last step change memory that the daemon sees? */
static bool stored(struct learner *l)
{
	bool changed;
	char *swap;

	if (!look_at_c(l))
		return false;
	changed = memcmp(l->now, l->old, WATCHED);
	if (changed)
		note_ops(l);
	swap = l->old;
	l->old = l->now;
	l->now = swap;
	return changed;
}

/* Is the address new in this phase? */
static bool is_new(struct learner *l, u64 pc)
{
	u32 at = (u32)(pc * 0x9e3779b97f4a7c15ull >> 40) % SEEN_SLOTS, i;

	for (i = 0; i < SEEN_SLOTS; i++, at = (at + 1) % SEEN_SLOTS) {
		if (l->seen[at] == pc)
			return false;
		if (!l->seen[at]) {
			l->seen[at] = pc;
			return true;
		}
	}
	return false;
}

static void point_add(struct learner *l, u64 pc, u32 phase)
{
	struct step_trace *t = l->t;
	struct step_point *pt;
	bool fresh = !t->nr || t->pt[t->nr - 1].phase != phase;
	u32 i;

	if (t->nr == l->cap) {
		l->cap = max(2 * l->cap, 1u << 16);
		t->pt = realloc(t->pt, l->cap * sizeof(*t->pt));
		ck_assert_ptr_nonnull(t->pt);
	}
	if (fresh) {
		for (i = t->nr ? t->pt[t->nr - 1].phase + 1u : 0; i <= phase;
		     i++)
			t->first[i] = t->nr;
		memset(l->seen, 0, SEEN_SLOTS * sizeof(*l->seen));
	}
	pt = &t->pt[t->nr];
	pt->pc = pc;
	pt->phase = (u8)phase;
	pt->kind = STEP_OTHER;
	pt->anchor = is_new(l, pc) || fresh ? t->nr : pt[-1].anchor;
	t->nr++;
}

static bool is_call(u64 pc)
{
	u16 insn;

	memcpy(&insn, (const void *)(uintptr_t)pc, sizeof(insn));
	return insn == INSN_SYSCALL;
}

/* Take one step; it determines the kind of the point before it and of the one after. */
static bool learn_step(struct learner *l)
{
	struct step_trace *t = l->t;
	const u32 before = t->nr - 1;
	bool call = is_call(t->pt[before].pc);
	u8 kind;
	u64 pc;

	if (go(l->v, PTRACE_SINGLESTEP) != SIGTRAP)
		return false;
	pc = pc_get(l->v->pid);
	kind = stored(l) ? STEP_STORE : call ? STEP_CALL : STEP_OTHER;
	if (kind)
		t->pt[before].kind = kind;
	if (pc == t->pt[before].pc)
		return true;
	point_add(l, pc, READ_ONCE(l->v->p->phase));
	if (kind)
		t->pt[t->nr - 1].kind = kind;
	return true;
}

void step_learn(struct step_trace *t, struct step_victim *v)
{
	struct learner l = { .t = t, .v = v };
	u32 i;

	memset(t, 0, sizeof(*t));
	l.old = calloc(1, WATCHED);
	l.now = calloc(1, WATCHED);
	l.seen = malloc(SEEN_SLOTS * sizeof(*l.seen));
	ck_assert(l.old && l.now && l.seen);
	point_add(&l, pc_get(v->pid), 0);
	while (learn_step(&l))
		;
	for (i = t->pt[t->nr - 1].phase + 1u; i <= STEP_NR; i++)
		t->first[i] = t->nr;
	free(l.old);
	free(l.now);
	free(l.seen);
}

void step_forget(struct step_trace *t)
{
	free(t->pt);
	memset(t, 0, sizeof(*t));
}

/* ---- run to a point ---- */

/* Run until @pc; false: the process stopped before the next phase, or ended. */
static bool run_to(struct step_victim *v, u64 pc)
{
	long text;
	bool hit;

	if (pc_get(v->pid) == pc)
		return true;
	text = ptrace(PTRACE_PEEKTEXT, v->pid, pc, NULL);
	ptrace(PTRACE_POKETEXT, v->pid, pc, (text & ~0xffl) | 0xcc);
	if (go(v, PTRACE_CONT) != SIGTRAP)
		return false;
	hit = pc_get(v->pid) == pc + 1;
	ptrace(PTRACE_POKETEXT, v->pid, pc, text);
	if (hit)
		pc_set(v->pid, pc);
	return hit;
}

enum step_where step_to_point(struct step_victim *v,
			      const struct step_trace *t, u32 i)
{
	const struct step_point *pt = &t->pt[i];
	u32 steps = i - pt->anchor;
	u64 pc, was;

	if (!step_to_phase(v, pt->phase))
		return STEP_GONE;
	WRITE_ONCE(v->p->stop_mask, 2u << pt->phase);
	if (!run_to(v, t->pt[pt->anchor].pc))
		return STEP_GONE;
	for (was = t->pt[pt->anchor].pc; steps; was = pc) {
		if (go(v, PTRACE_SINGLESTEP) != SIGTRAP)
			return STEP_GONE;
		pc = pc_get(v->pid);
		steps -= pc != was;
	}
	if (pc_get(v->pid) == pt->pc)
		return STEP_THERE;
	return READ_ONCE(v->p->phase) == pt->phase ? STEP_NEAR : STEP_GONE;
}

#endif /* __x86_64__ */
