// SPDX-License-Identifier: Apache-2.0
/*
 * server.c - the OpenAI server of one model
 *
 *	 clients
 *	    |  HTTP/1.1
 *	 loop (conn.c, http.c)		this thread: sockets, answers, nothing slow
 *	    |  route.c, call.c		requests; tokens to text; text to answers
 *	 reader x 2 (api.h)		bodies to prompts
 *	    |
 *	 backend (backend.c)		its thread: model, engine, the daemon
 *
 * Threads meet in mailboxes (mailbox.h) and nowhere else; none waits for
 * another.  The shape has room for more: loops share nothing and each could
 * listen on a socket of its own, and a backend is one model.
 *
 * The port is taken first, but for a look whether there is a model at all: what
 * is wrong with it is said before a model is loaded, and clients that come
 * early get 503, not a refused connection.
 *
 * The end: on a signal nothing new is accepted, what runs may finish for a
 * while, the rest is told, and the daemon gets its memory back in order.  A
 * second signal shortens the while to nothing.
 */
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <event2/event.h>

#include <kvmm/log.h>

#include "runtime/server/route.h"
#include "runtime/server/server.h"

#define SERVER_BACKLOG		4096
#define SERVER_TICK_US		10000
#define SERVER_LAST_WORDS_MS	2000	/* for answers that are cancelled */
#define SERVER_JOIN_MS		5000
#define SERVER_NAME_MAX		256u

/**
 * struct server - everything of server_run()
 * @draining:  nothing new is accepted
 * @cancelled: what ran was told to end
 * @until_ms:  of the part of the end that we are in
 */
struct server {
	const struct server_opts	*o;
	char				name[SERVER_NAME_MAX];
	char				url[NI_MAXHOST + 32];
	int				fd;
	int				sigfd;
	struct loop			loop;
	struct backend			backend;
	bool				has_backend;
	struct service			svc;
	struct site			site;
	struct mail			changed;
	struct event			*ev_signal;
	struct event			*ev_tick;
	bool				greeted;
	bool				draining;
	bool				cancelled;
	s64				until_ms;
	enum server_end			end;
	int				err;
};

static s64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (s64)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* ---- the address ---- */

static int listen_at(const struct addrinfo *ai)
{
	const int on = 1;
	int fd, err;

	fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC |
		    SOCK_NONBLOCK, ai->ai_protocol);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (!bind(fd, ai->ai_addr, ai->ai_addrlen) &&
	    !listen(fd, SERVER_BACKLOG))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

static const char *listen_remedy(int err)
{
	switch (-err) {
	case EADDRINUSE:
		return "another program has the port, choose one with --port";
	case EACCES:
		return "ports below 1024 are for root, choose one with --port";
	case EADDRNOTAVAIL:
		return "this machine has no such address, choose one with --host";
	default:
		return "choose another with --host and --port";
	}
}

/* Where it is really, with the port that the system chose. */
static void name_address(struct server *s)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	char host[NI_MAXHOST] = "?", port[16] = "?";

	if (!getsockname(s->fd, (struct sockaddr *)&sa, &len))
		getnameinfo((struct sockaddr *)&sa, len, host, sizeof(host),
			    port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(s->url, sizeof(s->url), strchr(host, ':') ?
		 "http://[%s]:%s" : "http://%s:%s", host, port);
}

static int open_address(struct server *s)
{
	const struct addrinfo hints = {
		.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
	};
	struct addrinfo *list, *ai;
	char port[16];
	int err;

	snprintf(port, sizeof(port), "%u", s->o->port);
	err = getaddrinfo(s->o->host, port, &hints, &list);
	if (err) {
		pr_err("--host %.100s: %s: give an address of this machine, 127.0.0.1 for example",
		       s->o->host, gai_strerror(err));
		s->end = SERVER_BAD_OPTION;
		return -1;
	}
	for (ai = list; ai; ai = ai->ai_next) {
		s->fd = listen_at(ai);
		if (s->fd >= 0)
			break;
	}
	freeaddrinfo(list);
	if (s->fd < 0) {
		pr_err("cannot listen on %.100s port %u: %s: %s", s->o->host,
		       s->o->port, strerror(-s->fd), listen_remedy(s->fd));
		s->end = SERVER_NO_ADDRESS;
		return -1;
	}
	name_address(s);
	return 0;
}

/* ---- the end ---- */

static void arm_tick(struct server *s)
{
	const struct timeval tv = { 0, SERVER_TICK_US };

	event_add(s->ev_tick, &tv);
}

static void cancel_rest(struct server *s)
{
	s->cancelled = true;
	s->until_ms = now_ms() + SERVER_LAST_WORDS_MS;
	service_cancel(&s->svc);
}

/* While it ends: is it over, or is the time? */
static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct server *s = arg;

	if (!s->svc.nr_calls && !loop_busy(&s->loop)) {
		loop_stop(&s->loop);
		return;
	}
	if (now_ms() >= s->until_ms) {
		if (s->cancelled) {
			loop_stop(&s->loop);
			return;
		}
		pr_warn("%u request%s did not finish in %u s: cut short",
			s->svc.nr_calls, s->svc.nr_calls > 1 ? "s" : "",
			s->o->drain_s);
		cancel_rest(s);
	}
	arm_tick(s);
}

static void drain(struct server *s)
{
	s->draining = true;
	s->svc.draining = true;
	s->until_ms = now_ms() + (s64)s->o->drain_s * 1000;
	if (s->svc.nr_calls)
		pr_info("finishing %u request%s, for at most %u s; a second signal ends them now",
			s->svc.nr_calls, s->svc.nr_calls > 1 ? "s" : "",
			s->o->drain_s);
	loop_drain(&s->loop);
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
			s->svc.nr_calls, s->svc.nr_calls == 1 ? "" : "s");
		cancel_rest(s);
	}
}

/* The backend's state changed. */
static void on_changed(struct mail *m)
{
	struct server *s = container_of(m, struct server, changed);
	const struct backend *b = &s->backend;

	switch (backend_get_state(b)) {
	case BACKEND_ATTACHED:
		if (!s->greeted)
			pr_info("ready: curl %s/v1/completions -d '{\"prompt\": \"In the beginning\", \"max_tokens\": 32}'",
				s->url);
		s->greeted = true;
		break;
	case BACKEND_FAILED:
		pr_err("%s", b->why);
		s->err = b->exit_err;
		s->end = b->tok ? SERVER_NO_DAEMON : SERVER_NO_MODEL;
		loop_stop(&s->loop);
		break;
	default:
		break;
	}
}

/* ---- set up and take down ---- */

static int choose_name(struct server *s)
{
	char *path = realpath(s->o->dir, NULL);
	const char *name = path ? path : s->o->dir, *base;
	size_t i, n;

	base = strrchr(name, '/');
	if (base && base[1])
		name = base + 1;
	if (s->o->name)
		name = s->o->name;
	n = strlen(name);
	for (i = 0; i < n; i++)
		if ((u8)name[i] < 0x20 || name[i] == 0x7f)
			break;
	if (n && i == n && n < sizeof(s->name))
		memcpy(s->name, name, n + 1);
	free(path);
	if (*s->name)
		return 0;
	pr_err("the name of the model is empty, too long, or has control characters: give one with --served-model-name");
	s->end = SERVER_BAD_OPTION;
	return -1;
}

/* A mistyped folder is said before a port is taken. */
static int look_at_model(struct server *s)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/config.json", s->o->dir);
	if (!access(path, R_OK))
		return 0;
	s->err = -errno;
	s->end = SERVER_NO_MODEL;
	pr_err("%s: %s: name a model folder in Hugging Face's format", path,
	       strerror(errno));
	return -1;
}

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
	const rlim_t want = s->o->limits.connections + 64;
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

static int start_threads(struct server *s)
{
	const struct server_opts *o = s->o;
	const struct backend_opts bo = {
		.dir = o->dir, .name = s->name, .model = o->model,
		.engine = o->engine, .priority = o->priority,
		.max_samples = o->samples, .chat_template = o->chat_template,
		.to = &s->loop.mail, .notify = &s->changed,
	};
	u32 i;
	int err;

	for (i = 0; i < SERVICE_READERS; i++) {
		err = reader_start(&s->svc.readers[i]);
		if (err)
			return err;
	}
	err = backend_start(&s->backend, &bo);
	s->has_backend = !err;
	return err;
}

static int start(struct server *s)
{
	static const struct loop_ops ops = {
		.request = route_request, .refuse = route_refuse,
		.ended = access_log,
	};
	int err;

	err = catch_signals(s);
	if (err)
		return err;
	err = loop_create(&s->loop, &ops, &s->o->limits, &s->site);
	if (err)
		return err;
	s->svc.b = &s->backend;
	s->svc.loop = &s->loop;
	s->svc.max_calls = s->o->calls;
	s->svc.max_stream = s->o->stream;
	s->site = (struct site){
		.svc = &s->svc, .key = s->o->key, .stall_s = s->o->stall_s,
		.created = time(NULL),
	};
	s->changed.fn = on_changed;
	s->ev_signal = event_new(s->loop.base, s->sigfd, EV_READ | EV_PERSIST,
				 on_signal, s);
	s->ev_tick = event_new(s->loop.base, -1, 0, on_tick, s);
	if (!s->ev_signal || !s->ev_tick || event_add(s->ev_signal, NULL))
		return -ENOMEM;
	err = start_threads(s);
	if (err)
		return err;
	err = loop_listen(&s->loop, s->fd);
	if (!err)
		s->fd = -1;	/* the loop's now */
	return err;
}

/* Return: false when a thread is stuck: then only the process can end. */
static bool stop_threads(struct server *s)
{
	u32 i;

	for (i = 0; i < SERVICE_READERS; i++)
		reader_stop(&s->svc.readers[i]);
	if (!s->has_backend)
		return true;
	s->svc.draining = true;
	service_cancel(&s->svc);
	mailbox_deliver(&s->loop.mail);
	if (!backend_join(&s->backend, SERVER_JOIN_MS))
		return false;
	mailbox_deliver(&s->loop.mail);
	backend_free(&s->backend);
	return true;
}

static void take_down(struct server *s)
{
	if (!stop_threads(s))
		return;
	if (s->ev_signal)
		event_free(s->ev_signal);
	if (s->ev_tick)
		event_free(s->ev_tick);
	if (s->loop.ops)
		loop_destroy(&s->loop);
	if (s->sigfd >= 0)
		close(s->sigfd);
	if (s->fd >= 0)
		close(s->fd);
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
	s->fd = -1;
	s->sigfd = -1;
	kv_log_never_wait();
	if (!choose_name(s) && !look_at_model(s) && !open_address(s)) {
		raise_limits(s);
		ret = start(s);
		if (ret) {
			pr_err("the server cannot start: %s", strerror(-ret));
			s->end = SERVER_NO_SYSTEM;
		} else {
			pr_info("listening on %s, loading %s", s->url, o->dir);
			loop_run(&s->loop);
		}
	}
	end = s->end;
	*err = s->err;
	take_down(s);
	return end;
}
