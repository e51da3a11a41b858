/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_client.h - a client that uses every verb, and an honest one
 *
 * A victim runs the scene phase by phase; the number of the phase is in memory
 * that it shares with its tracer.  The honest client does the same work all the
 * time and checks every byte of its memory.
 */
#ifndef TESTS_STEP_CLIENT_H
#define TESTS_STEP_CLIENT_H

#include <kvmm/types.h>

/* The phases of a scene, in order: name, words. */
#define STEP_PHASES(x)							\
	x(start,	"before ATTACH")				\
	x(attach,	"ATTACH")					\
	x(nop,		"NOP; extents come, EXTENT_ACK")		\
	x(open,		"SEQ_OPEN")					\
	x(match,	"SEQ_MATCH")					\
	x(admit,	"waiting until both are READY")			\
	x(begin,	"STEP_BEGIN of a prefill")			\
	x(kv,		"blocks written")				\
	x(end,		"STEP_END of a prefill")			\
	x(steps,	"two steps open, begun and ended")		\
	x(lookup,	"SEQ_LOOKUP")					\
	x(lease,	"SEQ_LEASE, and a sequence that begins with it") \
	x(fork,		"SEQ_FORK")					\
	x(copy,		"a step with copies on write")			\
	x(remap,	"SEQ_REMAP")					\
	x(truncate,	"SEQ_TRUNCATE")					\
	x(trim,		"SEQ_TRIM")					\
	x(setprio,	"SEQ_SETPRIO")					\
	x(advise,	"SEQ_ADVISE: COLD, KEEP_UNTIL, DONTNEED, RETAIN") \
	x(pageout,	"SEQ_ADVISE: PAGEOUT")				\
	x(willneed,	"SEQ_ADVISE: WILLNEED, and its return")		\
	x(close,	"SEQ_CLOSE")					\
	x(detach,	"a step left open, ended by kvmm_detach(); DETACH") \
	x(over,		"after it")

enum step_phase {
#define x(name, words)	STEP_##name,
	STEP_PHASES(x)
#undef x
	STEP_NR,
};

extern const char *const step_phase_name[STEP_NR];

/**
 * struct step_page - memory that a scene and its tracer share
 * @phase:     enum step_phase, by the scene
 * @stop_mask: bit of each phase before which the scene traps
 * @done_mask: bit of each phase that succeeded
 * @advice:    bit of each KVMM_ADV_ that was given
 * @seg_c:     address of segment C in the scene, NULL: none
 * @quit:      ends an honest client
 * @rounds:    rounds of an honest client, each with a check of all bytes
 * @hits:      tokens that it found in the cache
 * @why:       the first fault, in words
 */
struct step_page {
	u32		phase;
	u32		stop_mask;
	u32		done_mask;
	u32		advice;
	const void	*seg_c;
	u32		quit;
	u32		rounds;
	u64		hits;
	char		why[160];
};

/* A page that all processes forked from now on share. */
struct step_page *step_page_make(void);

/**
 * step_scene() - attach, every verb, detach
 * @socket: path of the attach socket
 * @salt:   determines its ids; clients with the same salt share blocks
 *
 * It ends at the first answer that an undisturbed client would not get.
 */
void step_scene(struct step_page *p, const char *socket, u32 salt);

/* Work until @p->quit; false, with p->why, when a byte is wrong. */
bool step_honest(struct step_page *p, const char *socket, u32 nr_salts);

#endif /* TESTS_STEP_CLIENT_H */
