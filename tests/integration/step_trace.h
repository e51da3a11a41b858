/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_trace.h - a process that is ended at an instruction of one's choice
 *
 * A scene is single-stepped once from beginning to end and each instruction
 * noted: that is a trace.  Another run of it is then ended at any point of the
 * trace: it runs freely to an instruction near before, by a trap, and is
 * stepped from there.
 */
#ifndef TESTS_STEP_TRACE_H
#define TESTS_STEP_TRACE_H

#include <sys/types.h>

#include "tests/integration/step_client.h"

/* What is about to happen at a point, or just happened. */
enum step_kind {
	STEP_OTHER,
	STEP_STORE,	/* segment C changes, or just has */
	STEP_CALL,	/* a system call */
	STEP_KINDS,
};

/* Where a run is that was to come to a point. */
enum step_where {
	STEP_GONE,	/* it never came by there, or went another way */
	STEP_NEAR,	/* in that phase, as many instructions on */
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
 * struct step_trace - all that a scene does
 * @nr:    points; those of a phase lie side by side
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

/* NULL, or why nobody may be traced here. */
const char *step_forbidden(void);

/* Fork one that runs the scene, stopped at its very beginning. */
void step_start(struct step_victim *v, struct step_page *p, const char *socket,
		u32 salt);
/* Has somebody else killed it, and is it gone?  True once. */
bool step_was_killed(struct step_victim *v);
/* End it, wherever it is. */
void step_kill(struct step_victim *v);

/* Step through a whole scene. */
void step_learn(struct step_trace *t, struct step_victim *v);
void step_forget(struct step_trace *t);

/* Run to the beginning of a phase: false: it ended, or gave up, before. */
bool step_to_phase(struct step_victim *v, u32 phase);
/* Run to point @i of the trace. */
enum step_where step_to_point(struct step_victim *v,
			      const struct step_trace *t, u32 i);
/* On to the next entry to or exit from a system call: false: it ended. */
bool step_to_call(struct step_victim *v);
/* On to the exit from system call @nr: false: it ended. */
bool step_past_call(struct step_victim *v, long nr);
/* Let it run, without waiting for anything. */
void step_release(struct step_victim *v);
/* Wait until it has ended; its status as of waitpid(). */
int step_wait(struct step_victim *v);

#endif /* TESTS_STEP_TRACE_H */
