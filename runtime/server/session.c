// SPDX-License-Identifier: Apache-2.0
/*
 * session.c - prompts that clients named, and hints about them
 *
 * The jobs of a session are done one after the other, since the engine has at most one
 * hint about a prompt.  Jobs of different sessions are done side by side.
 *
 * When there are too many sessions or ids, the session used longest ago is forgotten.
 * One that has a lease or a pin is forgotten at once, too; its memory is freed when the
 * engine has ended both.
 */
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/clock.h>

#include "runtime/server/session.h"

#define LOOK_NS		50000000ll	/* between two looks at the pins */

/**
 * struct session - one prompt
 * @jobs:    the first of them is at work if @busy
 * @own:     a job of the server, @queued or not
 * @common:  leading tokens of a stale lease that the ids still have
 * @pin_end: CLOCK_MONOTONIC ns at which the pin ends
 * @gone:    it is in sessions.dead
 */
struct session {
	struct list		list;
	struct sessions		*t;
	char			name[API_SESSION_MAX + 1];
	u32			key;
	u64			adapter;
	u32			*ids;
	struct engine_lease	lease;
	struct list		jobs;
	bool			busy;
	struct session_job	own;
	bool			queued;
	u32			common;
	s64			pin_end;
	bool			gone;
};

void sessions_init(struct sessions *t)
{
	memset(t, 0, sizeof(*t));
	list_init(&t->all);
	list_init(&t->dead);
}

static void session_free(struct session *s)
{
	list_del(&s->list);
	free(s->ids);
	free(s);
}

static void free_list(struct list *head)
{
	while (!list_empty(head))
		session_free(list_entry(head->next, struct session, list));
}

void sessions_free(struct sessions *t)
{
	free_list(&t->all);
	free_list(&t->dead);
}

void sessions_attach(struct sessions *t, struct engine *e)
{
	t->engine = e;
	if (!e)
		free_list(&t->dead);
}

/* Does the client of @job see @s? */
static bool is_of(const struct session *s, const struct session_job *job)
{
	return s->key == job->key && s->lease.salt == job->salt &&
	       s->adapter == job->adapter;
}

static struct session *session_find(const struct sessions *t,
				    const struct session_job *job)
{
	struct list *it, *tmp;

	list_for_each(&t->all, it, tmp) {
		struct session *s = list_entry(it, struct session, list);

		if (is_of(s, job) && !strcmp(s->name, job->name))
			return s;
	}
	return NULL;
}

/* ---- what a client is told ---- */

static s64 ms_until(s64 ns)
{
	const s64 left = ns - (s64)kv_now_ns();

	return left > 0 ? left / 1000000 : 0;
}

/* The numbers, without the answer to a hint. */
static void tell_numbers(const struct session *s, struct session_told *told)
{
	const struct engine_lease *l = &s->lease;
	const bool lasts = ms_until(l->until) > 0;
	const u32 most = l->stale ? s->common : l->nr;

	*told = (struct session_told){
		.tokens = l->nr, .held = lasts ? min(l->held, most) : 0,
		.kept = lasts ? min(l->kept, most - min(l->held, most)) : 0,
		.left_ms = ms_until(l->until),
		.answer = "accepted",
	};
	if (l->pin && s->t->engine) {
		told->pinned = engine_pinned(s->t->engine, l);
		told->pin_ms = ms_until(s->pin_end);
	}
}

static void clip(struct session_told *told, const char *why)
{
	const size_t n = strlen(told->why);

	told->answer = "clipped";
	snprintf(told->why + n, sizeof(told->why) - n, "%s%s", n ? "; " : "", why);
}

/* How did the hint end that the engine has done? */
static void tell_hint(const struct session *s, struct session_told *told, u32 ms)
{
	const struct engine_lease *l = &s->lease;
	char part[96];

	if (l->err && (l->hint != ENGINE_RETAIN || !l->kept)) {
		told->answer = "refused";
		snprintf(told->why, sizeof(told->why), "%s", engine_hint_text(l->err));
		return;
	}
	if (l->hint >= ENGINE_UNPIN)
		return;
	told->moved = l->moved;
	if (l->err || l->reason)
		clip(told, engine_hint_text(l->err ? l->err : l->reason));
	if (l->held + l->kept < l->nr) {
		snprintf(part, sizeof(part), "%u of %u tokens are cached",
			 l->held + l->kept, l->nr);
		clip(told, part);
	}
	if (l->granted < ms && l->hint == ENGINE_RETAIN) {
		snprintf(part, sizeof(part), "the daemon's longest lease is %u s",
			 (l->granted + 999) / 1000);
		clip(told, part);
	}
}

/* ---- jobs ---- */

static void adopt_ids(struct session *s, struct session_job *job)
{
	struct engine_lease *l = &s->lease;
	const u32 most = min(job->nr, l->stale ? s->common : l->nr);
	u32 same = 0;

	if (!s->gone)
		s->t->nr_ids += job->nr - (u64)l->nr;
	while (same < most && job->ids[same] == s->ids[same])
		same++;
	/* A lease of the same ids can be renewed. */
	s->common = same;
	l->stale |= job->nr != l->nr || same < job->nr;
	free(s->ids);
	s->ids = job->ids;
	l->ids = job->ids;
	l->nr = job->nr;
	job->ids = NULL;
}

/*
 * Begin a job.  Return: true: the engine does it, and on_hint() follows; false: it is
 * done, with @s->lease.err if it was a hint.
 */
static bool job_begin(struct session *s, struct session_job *job)
{
	struct engine_lease *l = &s->lease;

	if (job->op == SESSION_NOTE)
		adopt_ids(s, job);
	if (job->op == SESSION_LOOK || (job->op == SESSION_NOTE && !job->ms))
		return false;
	l->hint = job->op == SESSION_END ? ENGINE_FORGET :
		  job->op == SESSION_NOTE ? ENGINE_RETAIN : job->hint;
	l->ms = job->ms;
	l->err = s->t->engine ? engine_hint(s->t->engine, l) : -ECONNRESET;
	return !l->err;
}

/* The session is no more for its client. */
static void session_forget(struct session *s)
{
	if (s->gone)
		return;
	s->gone = true;
	s->t->nr--;
	s->t->nr_ids -= s->lease.nr;
	list_del(&s->list);
	list_add_tail(&s->t->dead, &s->list);
}

/* The first job is done. */
static void job_end(struct session *s)
{
	struct session_job *job = list_entry(s->jobs.next, struct session_job, list);
	const bool pins = job->op == SESSION_HINT && job->hint == ENGINE_PIN;

	list_del(&job->list);
	if (pins && !s->lease.err) {
		s->pin_end = (s64)kv_now_ns() + job->ms * 1000000ll;
		s->t->pins = true;
	}
	tell_numbers(s, &job->told);
	if (job->op == SESSION_HINT || (job->op == SESSION_NOTE && job->ms))
		tell_hint(s, &job->told, job->ms);
	if (job->op == SESSION_END)
		session_forget(s);
	job->done(job);
}

static void own_done(struct session_job *job)
{
	container_of(job, struct session, own)->queued = false;
}

static void queue_own(struct session *s, enum session_op op)
{
	if (s->queued)
		return;
	s->queued = true;
	s->own = (struct session_job){ .op = op, .hint = ENGINE_UNPIN,
				       .done = own_done };
	list_add_tail(&s->jobs, &s->own.list);
}

/* Do the jobs that wait.  A session that is gone is freed with its last handle. */
static void session_run(struct session *s)
{
	while (!s->busy) {
		const bool idle = list_empty(&s->jobs);
		struct engine_lease *l = &s->lease;

		if (idle && !s->gone)
			return;
		if (idle && !l->seq && !l->pin) {
			session_free(s);
			return;
		}
		if (idle)
			queue_own(s, SESSION_END);
		s->busy = job_begin(s, list_entry(s->jobs.next,
						  struct session_job, list));
		if (s->busy)
			return;
		job_end(s);
		if (idle)	/* the engine ends: sessions_attach() frees it */
			return;
	}
}

/* The engine has done the hint of the first job. */
static void on_hint(struct engine_lease *l)
{
	struct session *s = l->arg;

	s->busy = false;
	job_end(s);
	session_run(s);
}

static struct session *session_new(struct sessions *t, const struct session_job *job)
{
	struct session *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->t = t;
	s->key = job->key;
	s->adapter = job->adapter;
	memcpy(s->name, job->name, sizeof(s->name));
	memcpy(s->lease.label, job->name, strnlen(job->name, KVMM_LABEL_LEN));
	s->lease.salt = job->salt;
	s->lease.on_done = on_hint;
	s->lease.arg = s;
	list_init(&s->jobs);
	list_add_tail(&t->all, &s->list);
	t->nr++;
	return s;
}

/* Forget others for one more session, or for the ids of @job in place of those of @s. */
static void make_room(struct sessions *t, const struct session *s,
		      const struct session_job *job)
{
	const u64 more = job->op == SESSION_NOTE ? job->nr - (u64)s->lease.nr : 0;

	while (t->nr > SESSIONS_MAX || (t->nr > 1 && t->nr_ids + more > SESSIONS_IDS_MAX)) {
		struct session *old = list_entry(t->all.next, struct session, list);

		session_forget(old);
		session_run(old);
	}
}

void session_do(struct sessions *t, struct session_job *job)
{
	struct session *s = session_find(t, job);

	if (!s && job->op == SESSION_NOTE)
		s = session_new(t, job);
	if (!s) {
		free(job->ids);
		job->ids = NULL;
		job->told = (struct session_told){ .unknown = true };
		job->done(job);
		return;
	}
	list_del(&s->list);
	list_add_tail(&t->all, &s->list);
	make_room(t, s, job);
	list_add_tail(&s->jobs, &job->list);
	session_run(s);
}

void sessions_tick(struct sessions *t)
{
	const s64 now = t->pins ? (s64)kv_now_ns() : 0;
	struct list *it, *tmp;

	if (!t->pins || now < t->next || !t->engine)
		return;
	t->next = now + LOOK_NS;
	t->pins = false;
	list_for_each(&t->all, it, tmp) {
		struct session *s = list_entry(it, struct session, list);

		if (!s->lease.pin)
			continue;
		t->pins = true;
		if (now >= s->pin_end || engine_pin_lost(t->engine, &s->lease)) {
			queue_own(s, SESSION_HINT);
			session_run(s);
		}
	}
}

/* ---- JSON ---- */

static void write_numbers(struct text *t, const char *name,
			  const struct session_told *told)
{
	text_puts(t, "{\"name\":");
	text_jsons(t, name);
	text_printf(t, ",\"tokens\":%u,\"held\":%u,\"kept\":%u,\"until\":%.3f,\"pinned\":%u,\"pinned_until\":%.3f",
		    told->tokens, told->held, told->kept,
		    (double)told->left_ms / 1000, told->pinned,
		    (double)told->pin_ms / 1000);
}

void session_write(struct text *t, const char *name, const struct session_told *told)
{
	write_numbers(t, name, told);
	text_printf(t, ",\"moved\":%u,\"answer\":\"%s\",\"why\":", told->moved,
		    told->answer);
	text_jsons(t, told->why);
	text_puts(t, "}");
}

void sessions_list(const struct sessions *t, const struct session_job *job,
		   struct text *out)
{
	struct session_told told;
	const char *comma = "";
	struct list *it, *tmp;

	text_puts(out, "{\"object\":\"list\",\"data\":[");
	list_for_each(&t->all, it, tmp) {
		const struct session *s = list_entry(it, struct session, list);

		if (!is_of(s, job))
			continue;
		tell_numbers(s, &told);
		text_puts(out, comma);
		write_numbers(out, s->name, &told);
		text_puts(out, "}");
		comma = ",";
	}
	text_puts(out, "]}\n");
}
