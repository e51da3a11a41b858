/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostile.h - a program that means harm, beside an honest one
 *
 * A hostile program draws attacks from a seed for a given time.  It attacks the
 * sockets itself, and the rings in sessions: children that attach and may stop,
 * die or be killed.  In memory shared with the test it counts its attacks, and
 * the breaches: successes that should have been impossible.
 */
#ifndef TESTS_HOSTILE_H
#define TESTS_HOSTILE_H

#include "tests/integration/harness.h"
#include "tests/integration/wire.h"

/* Attacks of an attached client: name, words. */
#define HOSTILE_RING(x)							\
	x(sqe_random,	"entries of random bytes")			\
	x(sqe_field,	"entries with one field wrong")			\
	x(args_random,	"good entries with random arguments")		\
	x(args_outside,	"arguments outside their area")			\
	x(number_again,	"request numbers used again")			\
	x(tail_ahead,	"tails far ahead")				\
	x(tail_back,	"tails that go back")				\
	x(head_ahead,	"heads past what was completed")		\
	x(scribble,	"segment C overwritten at random")		\
	x(double_fetch,	"arguments changed while requests run")		\
	x(ack_lie,	"lies about extents")				\
	x(storm,	"open, fork and close to the limits")		\
	x(batch,	"batches as large as can be, and larger")	\
	x(handle,	"handles forged, of others, or long closed")	\
	x(unmap,	"memory unmapped while requests run")		\
	x(bell,		"doorbells by the thousand, and full ones")	\
	x(mute,		"answers and messages never read")		\
	x(speak,	"messages after ATTACH")			\
	x(hole,		"holes punched in segments and extents")	\
	x(truncate,	"segments and extents cut or grown")		\
	x(forbidden,	"segment D written to")				\
	x(stop,		"stopped inside a step")			\
	x(exit,		"ended inside a step")				\
	x(leave,	"hung up inside a step, living on")

/* Attacks on the sockets. */
#define HOSTILE_SOCK(x)							\
	x(hello_none,	"connections closed at once")			\
	x(hello_cut,	"attach requests cut or too long")		\
	x(hello_wrong,	"attach requests with wrong fields")		\
	x(hello_random,	"attach requests of random bytes")		\
	x(hello_gone,	"attach requests of one who hangs up")		\
	x(hello_mute,	"connections that say nothing")			\
	x(fds_attach,	"descriptors on the attach socket")		\
	x(fds_linger,	"descriptors that take long to close")

/* The same on sockets that only the daemon's own user may use. */
#define HOSTILE_OWN(x)							\
	x(fds_view,	"descriptors on the view socket")		\
	x(fds_admin,	"descriptors on the admin socket")		\
	x(view_random,	"garbage on the view socket")			\
	x(view_unread,	"views never read")				\
	x(view_half,	"half a request on the view socket")		\
	x(admin_random,	"garbage on the admin socket")

/* An attack that only another user carries out. */
#define HOSTILE_FOREIGN(x)						\
	x(foreign,	"another user at the view and admin sockets")

/* In this order, so that the attacks of one program are neighbours. */
#define HOSTILE_ALL(x)							\
	HOSTILE_RING(x) HOSTILE_OWN(x) HOSTILE_SOCK(x) HOSTILE_FOREIGN(x)

enum hostile_kind {
#define x(name, words)	HOSTILE_##name,
	HOSTILE_ALL(x)
#undef x
	HOSTILE_NR,
};

#define x(name, words)	+ 1
enum {
	HOSTILE_NR_RING = 0 HOSTILE_RING(x),
	HOSTILE_NR_OWN = 0 HOSTILE_OWN(x),
	HOSTILE_NR_SOCK = 0 HOSTILE_SOCK(x),
	HOSTILE_NR_FOREIGN = 0 HOSTILE_FOREIGN(x),
};
#undef x

/**
 * struct hostile_counts - attacks so far; shared by all hostile processes
 * @done:     attacks carried out
 * @sessions: clients that attached
 * @expelled: of them, those that the daemon ended
 * @refused:  attaches that were refused
 * @breaches: attacks that succeeded although they must be impossible
 * @breach:   the first of them, in words
 */
struct hostile_counts {
	u32	done[HOSTILE_NR];
	u32	sessions;
	u32	expelled;
	u32	refused;
	u32	breaches;
	char	breach[128];
};

#define HOSTILE_HELD	24

/**
 * struct hostile - one hostile program
 * @uid:     its user; 0: the user who runs the test
 * @attach:  path of the socket, or of a descriptor of it
 * @last:    it goes on for some time until every kind was carried out
 * @held:    connections that are left open for a while
 */
struct hostile {
	pid_t			pid;
	uid_t			uid;
	u64			rng;
	u64			end_ms;
	bool			last;
	char			attach[RIG_PATH + 32];
	char			view[RIG_PATH + 32];
	char			admin[RIG_PATH + 32];
	struct hostile_counts	*counts;
	int			held[HOSTILE_HELD];
	u32			next_held;
};

/*
 * Start one for @ms, as user @uid if that is not 0.  With @last it goes on for
 * a while until every kind was carried out.
 */
void hostile_start(struct hostile *h, struct rig *r,
		   struct hostile_counts *counts, uid_t uid, u32 ms, bool last);
/* Wait for its end; none of its processes is left afterwards. */
void hostile_finish(struct hostile *h);
#define HOSTILE_BURST	120	/* below the backlog of a socket */

/*
 * Make as many connections to the attach socket of @r.  Each sends a descriptor
 * that takes a minute to close and that only the daemon holds then.  The call
 * needs no answer of the daemon, which may be stopped.  @peer: to be closed at
 * the end.
 */
void hostile_burst(struct rig *r, int peer[HOSTILE_BURST]);
/* Description of one kind. */
const char *hostile_words(enum hostile_kind kind);

/* ---- for the files of attacks ---- */

u32 hostile_below(struct hostile *h, u32 n);
void hostile_fill(struct hostile *h, void *buf, size_t bytes);
void hostile_breach(struct hostile *h, const char *what);
void hostile_count(struct hostile *h, enum hostile_kind kind);
/*
 * Draw one of @nr kinds from @first on; half of the times one that was not
 * done yet.
 */
u32 hostile_draw(struct hostile *h, u32 first, u32 nr);

/* Attacks of the table in hostile_ring.c; false: not carried out this time. */
#define x(name, words)	bool ring_##name(struct hostile *h, struct wire *w);
HOSTILE_RING(x)
#undef x

/* Publish entries, and take the answers that come within a moment. */
void ring_settle(struct wire *w, u32 ms);

/* Draw one attack, carry it out and count it. */
void hostile_sock_attack(struct hostile *h);
/* The same on @w; false when the session is over. */
bool hostile_ring_attack(struct hostile *h, struct wire *w);

/* ---- cost of a step for an honest program: hostile_meter.c ---- */

enum meter_phase {
	METER_ALONE,
	METER_BUSY,		/* beside programs that only compute */
	METER_BESIDE,		/* beside hostile ones */
	METER_FIRST_ALONE,	/* the same while the daemon and the */
	METER_FIRST_BESIDE,	/* meter never wait for a CPU */
	METER_PHASES,		/* none of them: not counted */
};

#define METER_BUCKETS	1280u

/**
 * struct meter_counts - shared with the process that measures
 * @phase:   current phase; set by the test
 * @stop:    the process shall end; set by the test
 * @refused: sequences with a refused step
 * @waited:  sequences that did not become ready in time
 * @nr:      steps of each phase
 * @most:    ns of the longest step
 */
struct meter_counts {
	u32	phase;
	u32	stop;
	u64	refused;
	u64	waited;
	u64	nr[METER_PHASES];
	u64	most[METER_PHASES];
	u64	bucket[METER_PHASES][METER_BUCKETS];
};

struct meter {
	pid_t			pid;
	struct meter_counts	*counts;
};

void meter_start(struct meter *m, struct rig *r);
void meter_phase(struct meter *m, enum meter_phase phase);
/* Return: 0 when the meter went on to the end. */
int __must_check meter_stop(struct meter *m);
/* Longest ns of the fastest @permille of the steps of a phase; 0: no steps. */
u64 meter_quantile(const struct meter *m, enum meter_phase phase, u32 permille);
void meter_print(const struct meter *m);
void meter_free(struct meter *m);

#endif /* TESTS_HOSTILE_H */
