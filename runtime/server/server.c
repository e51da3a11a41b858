// SPDX-License-Identifier: Apache-2.0
/*
 * server.c - the OpenAI server
 *
 *	 clients
 *	    |  HTTP/1.1
 *	 acceptor (accept.c)		this thread: which loop gets a connection
 *	    |
 *	 loop x N (conn.c, http.c)	the first is this thread: sockets, answers,
 *	    |  route.c, call.c		nothing slow; tokens to text (choice.c)
 *	 reader x 2 (call_read.c)	bodies to prompts (fields.c, prompt.c)
 *	 loader (adapter_job.c)		files of adapters
 *	    |
 *	 backend x M (backend.c)	its thread: a model, its engine, the daemon
 *
 * Threads meet only in mailboxes (mailbox.h) and in counters; no thread waits
 * for another.  A connection stays with its loop.  Totals of all loops
 * (requests, connections, bodies) are atomic counters in struct site and struct
 * loop_crowd.
 *
 * The port is taken before a model is loaded; only a first look whether there
 * is a model at all comes before that.  So an error of the port is reported at
 * once, and clients that come early get 503 instead of a refused connection.
 *
 * The end: after a signal no connection is accepted.  Running requests may
 * finish for a while, the rest are cancelled with an answer, and the daemon
 * gets its memory back in order.  A second signal ends that while at once.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <event2/event.h>

#include <kvmm/clock.h>
#include <kvmm/log.h>
#include <kvmm/notify.h>

#include "runtime/server/accept.h"
#include "runtime/server/listen.h"
#include "runtime/server/lookup.h"
#include "runtime/server/plan.h"
#include "runtime/server/rates.h"
#include "runtime/server/route.h"
#include "runtime/server/server.h"
#include "runtime/server/status.h"

static_assert(SERVER_LOOPS_MAX == ACCEPT_LOOPS, "loops");

#define SERVER_TICK_US		10000
#define SERVER_LAST_WORDS_MS	2000	/* for answers to cancelled requests */
#define SERVER_JOIN_MS		5000

struct server;

/* Mail from a backend: its state has changed. */
struct server_note {
	struct mail	changed;
	struct server	*s;
	struct backend	*b;
};

/**
 * struct server - state of server_run()
 * @fds:       listening sockets that the acceptor does not own yet
 * @url:       URL of the first
 * @loop:      the loop of this thread
 * @threads:   [@nr_threads] threads of the other loops
 * @backends:  [@nr_backends] started backends, with their @notes
 * @lost:      the GPU failed: the server will end
 * @draining:  no connection is accepted any more
 * @cancelled: running requests were cancelled
 * @until_ms:  end of the current phase of the shutdown
 */
struct server {
	const struct server_opts	*o;
	struct plan_model		plan[SERVER_MODELS_MAX];
	struct adapter_wish		adapters[SERVER_ADAPTERS_MAX];
	char				url[LISTEN_URL];
	int				fds[ACCEPT_SOCKETS];
	u32				nr_fds;
	struct listen_path		path;
	int				sigfd;
	struct acceptor			acceptor;
	struct loop_crowd		crowd;
	struct loop			*loop;
	pthread_t			threads[SERVER_LOOPS_MAX];
	u32				nr_threads;
	struct backend			backends[SERVER_MODELS_MAX];
	struct server_note		notes[SERVER_MODELS_MAX];
	u32				nr_backends;
	struct site			site;
	struct rates			rates;
	struct lookup			lookup;
	struct event			*ev_signal;
	struct event			*ev_tick;
	bool				greeted;
	bool				lost;
	bool				draining;
	bool				cancelled;
	s64				until_ms;
	enum server_end			end;
	int				err;
};

/* ---- the addresses ---- */

static int open_addresses(struct server *s)
{
	const struct server_opts *o = s->o;
	int fd;

	if (!o->unix_only) {
		fd = listen_tcp(o->host, o->port, s->url);
		if (fd < 0)
			goto failed;
		s->fds[s->nr_fds++] = fd;
	}
	if (!o->unix_path)
		return 0;
	fd = listen_unix(&s->path, o->unix_path, o->unix_mode);
	if (fd < 0)
		goto failed;
	s->fds[s->nr_fds++] = fd;
	return 0;

failed:
	s->end = fd == -EINVAL ? SERVER_BAD_OPTION : SERVER_NO_ADDRESS;
	return -1;
}

static void tell_addresses(const struct server *s)
{
	const struct server_model *m = s->o->models;
	const char *path = s->path.path;
	char more[32] = "";

	if (s->o->nr_models > 1)
		snprintf(more, sizeof(more), " and %u more", s->o->nr_models - 1);
	pr_info("listening on %s%s%s%s, loading %s%s", s->url,
		path && *s->url ? " and " : "", path ? "unix:" : "",
		path ? path : "", m->dir, more);
}

/* ---- the end ---- */

static void arm_tick(struct server *s)
{
	const struct timeval tv = { 0, SERVER_TICK_US };

	event_add(s->ev_tick, &tv);
}

static u32 nr_calls(const struct server *s)
{
	return READ_ONCE(s->site.nr_calls);
}

static void cancel_rest(struct server *s)
{
	u32 i;

	s->cancelled = true;
	s->until_ms = (s64)kv_now_ms() + SERVER_LAST_WORDS_MS;
	for (i = 0; i < s->site.nr_services; i++) {
		struct service *svc = &s->site.services[i];

		mailbox_post(&svc->loop.mail, &svc->to_cancel);
	}
}

static bool is_busy(const struct server *s)
{
	bool busy = nr_calls(s) > 0;
	u32 i;

	for (i = 0; i < s->site.nr_services; i++)
		busy |= READ_ONCE(s->site.services[i].loop.nr_busy) > 0;
	return busy;
}

static void drain(struct server *s);

/* Has the time passed in which the server reports the failed GPU? */
static void tick_lost(struct server *s)
{
	if ((s64)kv_now_ms() < s->until_ms) {
		arm_tick(s);
		return;
	}
	drain(s);
	if (nr_calls(s))
		cancel_rest(s);
}

/* Shutdown timer: are all requests done, or is the time over? */
static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct server *s = arg;

	if (s->lost && !s->draining) {
		tick_lost(s);
		return;
	}
	if (!is_busy(s)) {
		loop_stop(s->loop);
		return;
	}
	if ((s64)kv_now_ms() >= s->until_ms) {
		const u32 nr = nr_calls(s);

		if (s->cancelled) {
			loop_stop(s->loop);
			return;
		}
		pr_warn("%u request%s did not finish in %u s: cut short", nr,
			nr > 1 ? "s" : "", s->o->drain_s);
		cancel_rest(s);
	}
	arm_tick(s);
}

static void drain(struct server *s)
{
	const u32 nr = nr_calls(s);
	u32 i;

	s->draining = true;
	(void)kv_notify("STOPPING=1");
	WRITE_ONCE(s->site.draining, 1);
	s->until_ms = (s64)kv_now_ms() + (s64)s->o->drain_s * 1000;
	if (nr)
		pr_info("finishing %u request%s, for at most %u s; a second signal ends them now",
			nr, nr > 1 ? "s" : "", s->o->drain_s);
	acceptor_close(&s->acceptor);
	listen_unix_end(&s->path);
	for (i = 0; i < s->site.nr_services; i++)
		loop_drain(&s->site.services[i].loop);
	arm_tick(s);
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
	struct signalfd_siginfo si;
	struct server *s = arg;

	if (read(s->sigfd, &si, sizeof(si)) != sizeof(si))
		return;
	if (!s->draining) {
		drain(s);
	} else if (!s->cancelled) {
		pr_warn("a second signal: %u request%s cut short",
			nr_calls(s), nr_calls(s) == 1 ? "" : "s");
		cancel_rest(s);
	}
}

/* Tell the service manager.  Return: whether all models are attached */
static bool tell_manager(struct server *s)
{
	return status_tell(s->backends, s->nr_backends,
			   *s->url ? s->url : s->path.path);
}

static void greet(struct server *s)
{
	const bool keys = s->o->keys && s->o->keys->nr;
	char model[PLAN_NAME_MAX + 16] = "";

	if (s->greeted)
		return;
	s->greeted = true;
	if (s->nr_backends > 1)
		snprintf(model, sizeof(model), "\"model\": \"%s\", ",
			 s->plan[0].name);
	pr_info("ready: curl %s%s%s/v1/completions%s -d '{%s\"prompt\": \"In the beginning\", \"max_tokens\": 32}'",
		*s->url ? "" : "--unix-socket ", *s->url ? s->url : s->path.path,
		*s->url ? "" : " http://localhost",
		keys ? " -H 'Authorization: Bearer KEY'" : "", model);
}

/*
 * The GPU is lost to this process, and all models are on it.  Running requests
 * have failed.  For a while the server answers each request with the reason, so
 * that a balancer sends requests elsewhere; then the process ends.  A new
 * process has a new context.
 */
static void lose(struct server *s, const char *why)
{
	s->end = SERVER_NO_DEVICE;
	if (s->lost)
		return;
	s->lost = true;
	pr_err("%s: requests are answered 503 for %u s, then this server ends: start it again",
	       why, s->o->lost_s);
	if (s->draining)
		return;
	s->until_ms = (s64)kv_now_ms() + (s64)s->o->lost_s * 1000;
	arm_tick(s);
}

/* The state of a backend changed. */
static void on_changed(struct mail *m)
{
	struct server_note *note = container_of(m, struct server_note, changed);
	const struct backend *b = note->b;
	struct server *s = note->s;
	char why[768];

	if (!s->draining && tell_manager(s))
		greet(s);
	switch (backend_get_state(b)) {
	case BACKEND_FAILED:
		pr_err("%s", b->why);
		s->err = b->exit_err;
		s->end = b->loaded ? SERVER_NO_DAEMON : SERVER_NO_MODEL;
		loop_stop(s->loop);
		break;
	case BACKEND_LOST:
		backend_why(note->b, why, sizeof(why));
		lose(s, why);
		break;
	default:
		break;
	}
}

/* ---- set up and take down ---- */

static int catch_signals(struct server *s)
{
	sigset_t set;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	s->sigfd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return s->sigfd < 0 ? -errno : 0;
}

static void raise_limits(const struct server *s)
{
	const struct server_opts *o = s->o;
	/* An adapter has its file open. */
	const u32 adapters = o->load_adapters ? SERVED_MAX * o->nr_models : o->nr_adapters;
	const rlim_t want = o->limits.connections + 64 + 8 * o->loops +
			    16 * o->nr_models + adapters;
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur >= want)
		return;
	r.rlim_cur = r.rlim_max == RLIM_INFINITY || r.rlim_max > want ?
		     want : r.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur < want)
		pr_warn("only %llu descriptors are allowed, --max-connections %u wants %llu: raise them with ulimit -n",
			(unsigned long long)r.rlim_cur,
			s->o->limits.connections, (unsigned long long)want);
}

static int start_backends(struct server *s)
{
	const struct server_opts *o = s->o;
	int err = 0;
	u32 i;

	for (i = 0; !err && i < o->nr_models; i++) {
		struct server_note *note = &s->notes[i];
		struct backend_opts bo = {
			.dir = o->models[i].dir, .name = s->plan[i].name,
			.model = o->model, .engine = o->engine,
			.priority = o->priority, .max_samples = o->samples,
			.chat_template = o->chat_template,
			.index = i, .adapters = s->adapters,
			.nr_adapters = o->nr_adapters,
			.to = &s->loop->mail, .notify = &note->changed,
		};

		bo.model.progress = o->models[i].progress;
		if (*s->plan[i].domain)
			bo.engine.domain = s->plan[i].domain;
		*note = (struct server_note){
			.changed.fn = on_changed, .s = s, .b = &s->backends[i],
		};
		err = backend_start(&s->backends[i], &bo);
		s->nr_backends += !err;
	}
	return err;
}

static void *loop_main(void *arg)
{
	loop_run(arg);
	return NULL;
}

static int start_threads(struct server *s)
{
	int err;
	u32 i;

	for (i = 0; i < SERVICE_READERS; i++) {
		err = reader_start(&s->site.readers[i], "kvrt-reader");
		if (err)
			return err;
	}
	err = s->o->load_adapters ? reader_start(&s->site.loader, "kvrt-loader") : 0;
	if (err)
		return err;
	for (i = 1; i < s->site.nr_services; i++) {
		err = -pthread_create(&s->threads[s->nr_threads], NULL,
				      loop_main, &s->site.services[i].loop);
		if (err)
			return err;
		pthread_setname_np(s->threads[s->nr_threads++], "kvrt-loop");
	}
	return start_backends(s);
}

static int create_loops(struct server *s)
{
	static const struct loop_ops ops = {
		.headers = route_headers,
		.request = route_request, .refuse = route_refuse,
		.ended = access_log,
	};
	struct site *site = &s->site;
	int err = 0;
	u32 i;

	site->services = calloc(s->o->loops, sizeof(*site->services));
	if (!site->services)
		return -ENOMEM;
	for (i = 0; !err && i < s->o->loops; i++) {
		struct service *svc = &site->services[i];

		site->nr_services++;
		err = service_init(svc, site);
		if (!err)
			err = loop_create(&svc->loop, &ops, &s->o->limits,
					  &s->crowd, svc);
	}
	s->loop = &site->services->loop;
	return err;
}

/* Start accepting connections. */
static int start_accepting(struct server *s)
{
	int err = 0;
	u32 i;

	for (i = 0; !err && i < s->nr_fds; i++) {
		err = acceptor_add(&s->acceptor, s->fds[i]);
		if (!err)
			s->fds[i] = -1;	/* the acceptor owns it now */
	}
	return err;
}

static int start(struct server *s)
{
	int err;
	u32 i;

	err = catch_signals(s);
	if (err)
		return err;
	s->site = (struct site){
		.backends = s->backends, .nr_backends = s->o->nr_models,
		.keys = s->o->keys, .stall_s = s->o->stall_s,
		.created = time(NULL), .max_calls = s->o->calls,
		.max_stream = s->o->stream, .timeout_s = s->o->timeout_s,
		.load_adapters = s->o->load_adapters,
	};
	cors_init(&s->site.cors, s->o->origins, s->o->nr_origins);
	err = create_loops(s);
	if (err)
		return err;
	err = acceptor_init(&s->acceptor, s->loop);
	if (err)
		return err;
	for (i = 1; i < s->site.nr_services; i++)
		acceptor_add_loop(&s->acceptor, &s->site.services[i].loop);
	s->ev_signal = event_new(s->loop->base, s->sigfd, EV_READ | EV_PERSIST,
				 on_signal, s);
	s->ev_tick = event_new(s->loop->base, -1, 0, on_tick, s);
	if (!s->ev_signal || !s->ev_tick || event_add(s->ev_signal, NULL))
		return -ENOMEM;
	err = start_threads(s);
	if (!err)
		err = rates_start(&s->rates, s->loop->base, s->backends,
				  s->nr_backends, s->o->stats_s);
	if (!err)
		lookup_open(&s->lookup, &s->site);
	return err ? err : start_accepting(s);
}

/* Deliver the mail of every loop, after the loops' threads have ended. */
static void deliver_all(struct server *s)
{
	u32 i;

	for (i = 0; i < s->site.nr_services; i++)
		mailbox_deliver(&s->site.services[i].loop.mail);
}

/*
 * Return: false when a thread is stuck: then only the end of the process helps.
 */
static bool stop_threads(struct server *s)
{
	u32 i;

	for (i = 0; i < s->nr_threads; i++) {
		loop_stop(&s->site.services[i + 1].loop);
		pthread_join(s->threads[i], NULL);
	}
	for (i = 0; i < SERVICE_READERS; i++)
		reader_stop(&s->site.readers[i]);
	WRITE_ONCE(s->site.draining, 1);
	reader_stop(&s->site.loader);
	if (!s->nr_backends)
		return true;
	for (i = 0; i < s->site.nr_services; i++)
		service_cancel(&s->site.services[i]);
	deliver_all(s);
	for (i = 0; i < s->nr_backends; i++)
		if (!backend_join(&s->backends[i], SERVER_JOIN_MS))
			return false;
	deliver_all(s);
	for (i = 0; i < s->nr_backends; i++)
		backend_free(&s->backends[i]);
	return true;
}

bool server_is_stuck;

static void take_down(struct server *s)
{
	u32 i;

	listen_unix_end(&s->path);
	rates_stop(&s->rates);
	lookup_close(&s->lookup);
	if (!stop_threads(s)) {
		server_is_stuck = true;
		return;
	}
	if (s->ev_signal)
		event_free(s->ev_signal);
	if (s->ev_tick)
		event_free(s->ev_tick);
	acceptor_close(&s->acceptor);
	for (i = 0; i < s->site.nr_services; i++) {
		if (s->site.services[i].loop.ops)
			loop_destroy(&s->site.services[i].loop);
		service_free(&s->site.services[i]);
	}
	free(s->site.services);
	if (s->sigfd >= 0)
		close(s->sigfd);
	for (i = 0; i < s->nr_fds; i++)
		if (s->fds[i] >= 0)
			close(s->fds[i]);
	free(s);
}

enum server_end server_run(const struct server_opts *o, int *err)
{
	struct server *s = calloc(1, sizeof(*s));
	enum server_end end;
	int ret;

	*err = 0;
	if (!s) {
		pr_err("no memory for the server");
		return SERVER_NO_SYSTEM;
	}
	s->o = o;
	s->sigfd = -1;
	kv_log_never_wait();
	if (!plan_models(o, s->plan, &s->end, &s->err) &&
	    !plan_adapters(o, s->plan, s->adapters, &s->end, &s->err) &&
	    !open_addresses(s)) {
		raise_limits(s);
		ret = start(s);
		if (ret) {
			pr_err("the server cannot start: %s", strerror(-ret));
			s->end = SERVER_NO_SYSTEM;
		} else {
			tell_addresses(s);
			(void)tell_manager(s);
			loop_run(s->loop);
		}
	}
	end = s->end;
	*err = s->err;
	take_down(s);
	return end;
}
