/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_trace.h - a process that is ended at a chosen instruction
 *
 * A trace is a list of all instructions of a scene, which is single-stepped
 * once from beginning to end.  Another run of the scene can be ended at any
 * point of the trace: it runs freely to an instruction shortly before, by a
 * trap, and is stepped from there.
 */
#ifndef TESTS_STEP_TRACE_H
#define TESTS_STEP_TRACE_H

#include <sys/types.h>

#include "tests/integration/step_client.h"

/* The event at a point, next or just past. */
enum step_kind {
	STEP_OTHER,
	STEP_STORE,	/* segment C changes, or just has */
	STEP_CALL,	/* a system call */
	STEP_KINDS,
};

/* Position of a run on its way to a point. */
enum step_where {
	STEP_GONE,	/* it missed the point, or took another path */
	STEP_NEAR,	/* in the same phase, after as many instructions */
	STEP_THERE,
};

/**
 * struct step_point - one instruction of a trace
 * @pc:     its address; traced processes are forked from this one
 * @phase:  enum step_phase
 * @kind:   enum step_kind
 * @anchor: index of the last point up to this one whose address comes up here
 *          for the first time in its phase
 */
struct step_point {
	u64	pc;
	u8	phase;
	u8	kind;
	u32	anchor;
};

/**
 * struct step_trace - all instructions of a scene
 * @nr:    points; those of a phase are neighbours
 * @first: the first one of each phase; [STEP_NR] is @nr
 * @ops:   bit of each KVMM_OP_ that was put into the ring
 */
struct step_trace {
	struct step_point	*pt;
	u32			nr;
	u32			first[STEP_NR + 1];
	u32			ops;
};

/**
 * struct step_victim - a traced process
 * @pid: 0: it has ended
 */
struct step_victim {
	pid_t			pid;
	struct step_page	*p;
};

/* NULL, or the reason why tracing is forbidden here. */
const char *step_forbidden(void);

/* Fork a process that runs the scene, stopped at its very beginning. */
void step_start(struct step_victim *v, struct step_page *p, const char *socket,
		u32 salt);
/* Has another process killed it, and has it ended?  True once. */
bool step_was_killed(struct step_victim *v);
/* End it at its current point. */
void step_kill(struct step_victim *v);

/* Step through a whole scene. */
void step_learn(struct step_trace *t, struct step_victim *v);
void step_forget(struct step_trace *t);

/* Run to the beginning of a phase; false: it ended or failed before. */
bool step_to_phase(struct step_victim *v, u32 phase);
/* Run to point @i of the trace. */
enum step_where step_to_point(struct step_victim *v,
			      const struct step_trace *t, u32 i);
/* Run to the next entry to or exit from a system call; false: it ended. */
bool step_to_call(struct step_victim *v);
/* Run to the exit from system call @nr; false: it ended. */
bool step_past_call(struct step_victim *v, long nr);
/* Let it run without waiting. */
void step_release(struct step_victim *v);
/* Wait until it has ended.  Return: its status, as of waitpid(). */
int step_wait(struct step_victim *v);

#endif /* TESTS_STEP_TRACE_H */
