// SPDX-License-Identifier: Apache-2.0
/*
 * bench_load.c - send all requests of a run at their times
 *
 * One thread and one epoll.  A request is sent when its time has come and there
 * are fewer requests in flight than allowed; otherwise it waits until one ends,
 * and its own time begins when it is sent.  A connection is used again after
 * its answer.  The body of the next request is made ahead, since writing a long
 * prompt takes a while.
 *
 * A server may refuse, fall silent or die at any point: requests fail one by
 * one, and their reasons are counted.  When no program listens there any more,
 * the remaining requests are not sent.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include <kvmm/clock.h>

#include "runtime/cli/bench_serve.h"
#include "runtime/cli/cli.h"

#define LOAD_EVENTS	256
#define LOAD_FDS	64u	/* descriptors that are not connections */
#define LOAD_TICK	0.2	/* seconds between looks at the clock */

/**
 * struct run - state of load_run()
 * @open:     list of requests in flight; @nr_open of them
 * @idle:     kept connections, @nr_idle of them
 * @next:     number of the next request to send; @body is its body, if @made
 * @ticked:   when the clock was last checked
 */
struct run {
	struct load		*l;
	struct web_address	addr;
	int			epfd;
	struct flow		*open;
	u32			nr_open;
	int			*idle;
	u32			nr_idle;
	u32			next;
	struct text		body;
	bool			made;
	double			ticked;
};

static volatile sig_atomic_t caught;

static void on_signal(int sig)
{
	caught = sig;
}

/* ---- ending requests ---- */

static void count_reason(struct load *l, const char *why)
{
	u32 i;

	for (i = 0; i < l->nr_reasons; i++)
		if (!strcmp(l->reasons[i].text, why))
			break;
	if (i == l->nr_reasons && i < LOAD_REASONS)
		snprintf(l->reasons[l->nr_reasons++].text, LOAD_REASON_MAX,
			 "%s", i + 1 < LOAD_REASONS ? why : "other reasons");
	l->reasons[min(i, LOAD_REASONS - 1)].nr++;
	l->failed++;
}

static void record(struct load *l, struct flow *f)
{
	const struct bench_request *r = &l->w->list[f->request];
	struct load_sample *s = &l->samples[l->completed++];
	size_t i;

	/* An answer without any token: use its end. */
	if (!f->events)
		f->first = f->last = f->seen;
	*s = (struct load_sample){
		.request = f->request, .begin = f->begin - l->begin,
		.in = f->usage.known ? (u32)f->usage.in : r->in,
		.out = f->usage.known ? (u32)f->usage.out : f->events,
		.cached = (u32)f->usage.cached, .ttft = f->first - f->begin,
		.e2el = f->last - f->begin, .first_gap = l->gaps.nr,
		.nr_gaps = (u32)f->gaps.nr,
	};
	for (i = 0; i < f->gaps.nr; i++)
		series_add(&l->gaps, f->gaps.v[i]);
	l->gaps.failed |= f->gaps.failed;
	l->counted += f->usage.known;
	l->short_of += s->out < r->out;
	l->duration = f->seen - l->begin;
}

static void flow_free(struct run *r, struct flow *f)
{
	web_call_end(&f->call);
	*f->prev = f->next;
	if (f->next)
		f->next->prev = f->prev;
	series_free(&f->gaps);
	free(f);
	r->nr_open--;
}

/* A request has ended: count it, keep its connection. */
static void flow_end(struct run *r, struct flow *f)
{
	int fd = -1;

	if (f->failed)
		count_reason(r->l, f->why);
	else
		record(r->l, f);
	if (!f->failed)
		fd = web_call_take(&f->call);
	if (fd >= 0) {
		epoll_ctl(r->epfd, EPOLL_CTL_DEL, fd, NULL);
		r->idle[r->nr_idle++] = fd;
	}
	flow_free(r, f);
}

/* ---- starting requests ---- */

static int take_idle(struct run *r)
{
	while (r->nr_idle) {
		const int fd = r->idle[--r->nr_idle];

		if (web_is_idle(fd))
			return fd;
		close(fd);
	}
	return -1;
}

static void make_body(struct run *r)
{
	const struct load *l = r->l;

	if (r->made || r->next >= l->w->nr)
		return;
	text_clear(&r->body);
	form_body(l->form, l->w, &l->w->list[r->next], &r->body);
	r->made = true;
}

/* Tell epoll which events @f waits for. */
static int watch(struct run *r, struct flow *f, bool more, int op)
{
	struct epoll_event ev = {
		.events = EPOLLIN | (more ? EPOLLOUT : 0), .data.ptr = f,
	};

	f->armed = more;
	return epoll_ctl(r->epfd, op, f->call.fd, &ev) ? -errno : 0;
}

/* Send @body on connection @fd, or on a new one. */
static int flow_send(struct run *r, struct flow *f, int fd,
		     const struct text *body)
{
	const struct load *l = r->l;
	int err, more;

	f->reused = fd >= 0;
	err = web_call_start(&f->call, l->server, &r->addr, fd, l->form->path,
			     l->key, body);
	if (err)
		return err;
	more = web_call_write(&f->call);
	/* The server may answer why it does not read the rest. */
	if (more == -ECONNRESET || more == -EPIPE)
		more = 0;
	err = more < 0 ? more : watch(r, f, more, EPOLL_CTL_ADD);
	if (err)
		web_call_end(&f->call);
	return err;
}

/* Send the next request.  Return: false when it has to wait. */
static bool start_one(struct run *r, double now)
{
	struct flow *f = calloc(1, sizeof(*f));
	int err = -ENOMEM;

	make_body(r);
	if (f) {
		f->begin = f->seen = f->last = now;
		f->request = r->next;
		err = flow_send(r, f, take_idle(r), &r->body);
	}
	/* Send fewer at once, rather than count failures of this machine. */
	if ((err == -EMFILE || err == -ENFILE) && r->nr_open) {
		pr_warn("no more than %u connections can be open here: raise `ulimit -n`",
			r->nr_open);
		r->l->most = r->nr_open;
		free(f);
		return false;
	}
	r->next++;
	r->made = false;
	if (err) {
		count_reason(r->l, flow_error(err));
		r->l->gone |= err == -ECONNREFUSED;
		free(f);
		return true;
	}
	f->next = r->open;
	f->prev = &r->open;
	if (f->next)
		f->next->prev = &f->next;
	r->open = f;
	r->l->peak = max(r->l->peak, ++r->nr_open);
	return true;
}

/* Send requests that are due.  Return: seconds until the next one. */
static double start_due(struct run *r, double now)
{
	const struct workload *w = r->l->w;
	double wait = LOAD_TICK;

	while (r->next < w->nr && r->nr_open < r->l->most && !r->l->gone) {
		wait = r->l->begin + w->list[r->next].at - now;
		if (wait > 0)
			break;
		if (!start_one(r, now))
			return LOAD_TICK;
		wait = LOAD_TICK;
		now = kv_now_s();
	}
	return min(wait, LOAD_TICK);
}

/* ---- events ---- */

/* A kept connection was closed just before its use: send the request again. */
static bool try_again(struct run *r, struct flow *f)
{
	struct text body = { 0 };
	int err;

	if (!f->reused || f->call.status || f->call.raw.len)
		return false;
	web_call_end(&f->call);
	form_body(r->l->form, r->l->w, &r->l->w->list[f->request], &body);
	err = flow_send(r, f, -1, &body);
	text_free(&body);
	if (err)
		flow_fail(f, "%s", flow_error(err));
	return !err;
}

static void flow_event(struct run *r, struct flow *f, u32 events)
{
	int err = 0;

	if (f->armed && (events & EPOLLOUT)) {
		err = web_call_write(&f->call);
		if (err == -ECONNRESET || err == -EPIPE)
			err = 0;
		if (!err)
			err = watch(r, f, false, EPOLL_CTL_MOD);
		else if (err > 0)
			err = 0;
	}
	if (!err && (events & ~(u32)EPOLLOUT))
		err = web_call_read(&f->call);
	if (err && !f->ended) {
		if (try_again(r, f))
			return;
		r->l->gone |= err == -ECONNREFUSED;
		flow_fail(f, "%s", flow_error(err));
	} else {
		flow_take(f, kv_now_s(), r->l->form->chat);
	}
	if (f->failed || f->call.over || (err && f->ended))
		flow_end(r, f);
}

/* ---- the clock ---- */

static void say_progress(const struct run *r, double now)
{
	const struct load *l = r->l;

	fprintf(stderr, "\r\033[K%u of %u done, %u failed, %u on their way, %.0f s",
		l->completed, l->w->nr, l->failed, r->nr_open, now - l->begin);
	fflush(stderr);
}

static void tick(struct run *r, double now)
{
	struct flow *f, *next;

	if (now - r->ticked < LOAD_TICK)
		return;
	r->ticked = now;
	for (f = r->open; f; f = next) {
		next = f->next;
		if (now - f->seen < r->l->timeout_s)
			continue;
		if (!f->ended)
			flow_fail(f, "no answer for %u s", r->l->timeout_s);
		flow_end(r, f);
	}
	if (r->l->progress)
		say_progress(r, now);
}

static void loop(struct run *r)
{
	struct epoll_event ev[LOAD_EVENTS];
	struct load *l = r->l;
	struct timespec ts;
	double wait;
	int i, n;

	while (!caught && (r->nr_open || (r->next < l->w->nr && !l->gone))) {
		wait = max(start_due(r, kv_now_s()), 0.0);
		ts.tv_sec = 0;
		ts.tv_nsec = (long)(wait * 1e9);
		n = epoll_pwait2(r->epfd, ev, LOAD_EVENTS, &ts, NULL);
		for (i = 0; i < n; i++)
			flow_event(r, ev[i].data.ptr, ev[i].events);
		if (n <= 0)
			make_body(r);
		tick(r, kv_now_s());
	}
	l->stopped = caught;
	l->unsent = l->w->nr - r->next;
	l->peak = max(l->peak, r->nr_open);
	l->duration = max(l->duration, 1e-9);
	if (l->progress)
		fprintf(stderr, "\r\033[K");
}

/* ---- the run ---- */

/* As many connections as the system allows. */
static u32 connections(u32 most)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl))
		return most;
	if (rl.rlim_cur < (rlim_t)most + LOAD_FDS) {
		rl.rlim_cur = min(rl.rlim_max, (rlim_t)most + LOAD_FDS);
		setrlimit(RLIMIT_NOFILE, &rl);
		getrlimit(RLIMIT_NOFILE, &rl);
	}
	if (rl.rlim_cur >= (rlim_t)most + LOAD_FDS)
		return most;
	return (u32)max(rl.rlim_cur, (rlim_t)LOAD_FDS + 1) - LOAD_FDS;
}

static int prepare(struct run *r)
{
	struct load *l = r->l;
	const u32 most = connections(l->most);

	if (most < l->most)
		pr_warn("no more than %u connections can be open here: raise `ulimit -n`",
			most);
	l->most = most;
	l->samples = calloc(l->w->nr, sizeof(*l->samples));
	r->idle = calloc(l->most, sizeof(*r->idle));
	r->epfd = epoll_create1(EPOLL_CLOEXEC);
	if (l->samples && r->idle && r->epfd >= 0)
		return web_resolve(l->server, &r->addr);
	return -ENOMEM;
}

static void catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal };

	sigemptyset(&sa.sa_mask);
	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
}

int load_run(struct load *l)
{
	struct run r = { .l = l, .epfd = -1 };
	int err;

	err = prepare(&r);
	if (!err) {
		catch_signals();
		make_body(&r);
		l->begin = r.ticked = kv_now_s();
		loop(&r);
	}
	for (; r.open; l->cut_off++)
		flow_free(&r, r.open);
	while (r.nr_idle)
		close(r.idle[--r.nr_idle]);
	if (r.epfd >= 0)
		close(r.epfd);
	text_free(&r.body);
	free(r.idle);
	if (!err && l->gaps.failed)
		err = -ENOMEM;
	return err ? web_failed(l->server, err, l->timeout_s) : 0;
}

void load_free(struct load *l)
{
	free(l->samples);
	series_free(&l->gaps);
}
