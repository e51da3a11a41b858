/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session.h - prompts that clients named, and hints about them
 *
 * A session remembers the ids of the last request that named it: those of the prompt
 * and of the answer, whole blocks.  Hints about it need no request (engine/lease.h).
 * All functions but session_write() are for the thread of the engine.
 */
#ifndef RUNTIME_SERVER_SESSION_H
#define RUNTIME_SERVER_SESSION_H

#include <kvmm/list.h>
#include <kvmm/text.h>

#include "runtime/engine/lease.h"
#include "runtime/server/api.h"

#define SESSIONS_MAX		1024u		/* of a model */
#define SESSIONS_IDS_MAX	(4u << 20)	/* ids that they remember together */
#define SESSIONS_LEASES		256u		/* their leases and pins */

/* Name for clients, the engine's hint, whether it takes a time. */
#define SESSION_HINTS(x)						\
	x(retain, ENGINE_RETAIN, true)					\
	x(demote, ENGINE_DEMOTE, true)					\
	x(prefetch, ENGINE_PREFETCH, true)				\
	x(pin, ENGINE_PIN, true)					\
	x(unpin, ENGINE_UNPIN, false)

enum session_op {
	SESSION_NOTE,	/* a request has ended: remember its ids, and lease them if asked */
	SESSION_LOOK,
	SESSION_HINT,
	SESSION_END,
};

/**
 * struct session_told - a session for its client
 * @unknown: there is none of this name; the other members are not valid
 * @tokens:  tokens that are remembered
 * @held:    of these, tokens of the lease; @kept: tokens evicted last
 * @pinned:  tokens that the pin keeps on the device, 0: also while they come
 * @moved:   tokens that left the device or come to it
 * @left_ms: until the lease ends; @pin_ms: until the pin ends
 * @answer:  "accepted", "clipped" or "refused"
 * @why:     reason if it is not accepted, else ""
 */
struct session_told {
	bool		unknown;
	u32		tokens;
	u32		held;
	u32		kept;
	u32		pinned;
	u32		moved;
	s64		left_ms;
	s64		pin_ms;
	const char	*answer;
	char		why[160];
};

struct session;

/**
 * struct session_job - one thing to do with a session
 * @key:  number of the client's API key, 0: none
 * @salt: salt of its prompts; names are of one key, one salt and one adapter
 * @adapter: number of the adapter of its prompts, 0: none
 * @ms:   time of the hint; with SESSION_NOTE 0: make no lease
 * @ids:  of SESSION_NOTE: @nr ids, whole blocks, from malloc(); they are taken over
 * @done: called once, with @told; it may free the job
 */
struct session_job {
	struct list		list;
	char			name[API_SESSION_MAX + 1];
	u32			key;
	u64			salt;
	u64			adapter;
	enum session_op		op;
	enum engine_hint	hint;
	u32			ms;
	u32			*ids;
	u32			nr;
	void			(*done)(struct session_job *job);
	struct session_told	told;
};

/**
 * struct sessions - the sessions of a model, by their last use
 * @all:    the one used longest ago is first
 * @dead:   forgotten, but the engine is not finished with them
 * @nr_ids: ids that those of @all remember
 * @pins:   there may be pins
 * @next:   CLOCK_MONOTONIC ns of the next look at the pins
 */
struct sessions {
	struct engine	*engine;
	struct list	all;
	struct list	dead;
	u32		nr;
	u64		nr_ids;
	bool		pins;
	s64		next;
};

void sessions_init(struct sessions *t);
void sessions_free(struct sessions *t);

/* sessions_attach() - there is a new engine; NULL: the engine was destroyed */
void sessions_attach(struct sessions *t, struct engine *e);

/* session_do() - do @job when the jobs of its session before it are done */
void session_do(struct sessions *t, struct session_job *job);

/* sessions_tick() - end pins whose time is over; call it often */
void sessions_tick(struct sessions *t);

/* sessions_list() - write all sessions of the key, salt and adapter of @job, in JSON */
void sessions_list(const struct sessions *t, const struct session_job *job,
		   struct text *out);

/* session_write() - write the answer as a JSON object */
void session_write(struct text *t, const char *name, const struct session_told *told);

/* ---- session_read.c ---- */

/**
 * session_fits() - refuse hints about the prompts of an adapter
 * @adapter: NULL: there is none
 * @hint:    there is a hint
 * @param:   the field that has it
 *
 * Return: 0, or -1 with @err.
 */
int __must_check session_fits(const void *adapter, bool hint, const char *param,
			      struct api_error *err);

/**
 * hint_read() - read the body of a hint, or the query of a path
 * @name: of the session, @len bytes of the path
 * @root: the body, or an object of the query's members
 * @job:  gets name, salt, hint and time; @job->op is set
 *
 * Return: 0, or -1 with @err.
 */
int __must_check hint_read(const struct api_model *m, const char *name, size_t len,
			   const json_t *root, struct session_job *job,
			   struct api_error *err);

#endif /* RUNTIME_SERVER_SESSION_H */
