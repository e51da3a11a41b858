// SPDX-License-Identifier: Apache-2.0
/*
 * kvtop_poll.c - the thread that asks the daemon, so no key waits
 *
 * A stopped daemon answers after the timeout, or not at all.  One thread takes all
 * samples and sends all requests, one after the other.  It hands them over under a
 * lock, and a descriptor wakes the other thread.  At most one sample waits there: a
 * newer one replaces it.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <kvmm/clock.h>

#include "kvmm/tools/ask.h"
#include "kvmm/tools/kvtop.h"

/**
 * struct poller - the thread, and data that both threads use
 * @lock:   protects all members below
 * @wake:   signalled when the thread must act at once
 * @event:  descriptor: readable when there is a sample or an answer
 * @kick:   take a sample at once
 * @path:   view socket of the daemon that is shown
 * @req:    request to send; "": none
 * @req_path: view socket of the daemon that it is for
 * @done:   @refused and @answer are valid
 */
struct poller {
	char		path[KV_VIEW_PATH_MAX];
	u32		timeout_ms;
	pthread_t	thread;
	pthread_mutex_t	lock;
	pthread_cond_t	wake;
	int		event;
	u32		files;
	u32		client;
	double		interval;
	bool		paused;
	bool		kick;
	bool		stop;
	bool		busy;
	bool		done;
	bool		refused;
	struct sample	*fresh;
	char		req[KV_ADMIN_REQ];
	char		req_path[KV_VIEW_PATH_MAX];
	char		answer[KV_ADMIN_TEXT];
};

static void tell(struct poller *p)
{
	/* The counter cannot overflow: the other thread empties it. */
	(void)!eventfd_write(p->event, 1);
}

static void admin_explain(struct poller *p, const char *path, int err)
{
	const char *why;

	switch (err) {
	case -ENOENT:
	case -ECONNREFUSED:
		why = "no admin socket is beside the view socket: only the daemon's own directory has one";
		break;
	case -EACCES:
	case -EPERM:
		tool_refused(path, true, p->answer, sizeof(p->answer));
		return;
	case -ECONNABORTED:
		why = "the daemon went away, or does not serve this user";
		break;
	default:
		why = strerror(-err);
		break;
	}
	snprintf(p->answer, sizeof(p->answer), "%s", why);
}

/* Called with the lock held; drops it during the request. */
static void send_request(struct poller *p)
{
	char path[KV_VIEW_PATH_MAX];
	struct kv_admin a = {
		.path = path, .timeout_ms = p->timeout_ms, .fd = -1,
	};
	char req[KV_ADMIN_REQ], view[KV_VIEW_PATH_MAX];
	int err;

	strcpy(req, p->req);
	strcpy(view, p->req_path);
	pthread_mutex_unlock(&p->lock);
	err = kv_admin_path(view, path, sizeof(path));
	if (!err)
		err = kv_admin_ask(&a, req);
	pthread_mutex_lock(&p->lock);
	p->refused = err || a.status;
	if (err)
		admin_explain(p, path, err);
	else
		strcpy(p->answer, a.text);
	p->req[0] = '\0';
	p->done = true;
	/* Show the change at once. */
	p->kick = true;
	tell(p);
}

static void take_sample(struct poller *p)
{
	u32 files = p->files, client = p->client;
	char path[KV_VIEW_PATH_MAX];
	struct sample *s;

	strcpy(path, p->path);
	pthread_mutex_unlock(&p->lock);
	s = sample_new();
	if (s)
		sample_take(s, path, p->timeout_ms, files, client);
	pthread_mutex_lock(&p->lock);
	if (!s)
		return;
	/* Another daemon is shown meanwhile. */
	if (strcmp(path, p->path)) {
		sample_free(s);
		return;
	}
	sample_free(p->fresh);
	p->fresh = s;
	tell(p);
}

/* Sleep until @end, or until the thread must act. */
static void rest(struct poller *p, u64 end)
{
	struct timespec ts = {
		.tv_sec = (time_t)(end / 1000000000ull),
		.tv_nsec = (long)(end % 1000000000ull),
	};

	while (!p->stop && !p->kick && !*p->req) {
		if (p->paused)
			pthread_cond_wait(&p->wake, &p->lock);
		else if (pthread_cond_timedwait(&p->wake, &p->lock, &ts))
			break;
	}
}

static void *poller_run(void *arg)
{
	struct poller *p = arg;
	u64 begin;

	pthread_mutex_lock(&p->lock);
	while (!p->stop) {
		begin = kv_now_ns();
		p->kick = false;
		if (*p->req)
			send_request(p);
		else
			take_sample(p);
		rest(p, begin + (u64)(p->interval * 1e9));
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

/* The thread blocks all signals, SIGWINCH too: the other thread takes them. */
static int thread_start(struct poller *p)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&p->thread, NULL, poller_run, p);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return err;
}

struct poller *poller_start(const char *path, u32 timeout_ms, double interval)
{
	struct poller *p = calloc(1, sizeof(*p));
	pthread_condattr_t attr;
	int err;

	if (!p)
		return NULL;
	snprintf(p->path, sizeof(p->path), "%s", path);
	p->timeout_ms = timeout_ms;
	p->interval = interval;
	p->files = FILES_ALWAYS;
	pthread_mutex_init(&p->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&p->wake, &attr);
	pthread_condattr_destroy(&attr);
	p->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	err = p->event < 0 ? errno : thread_start(p);
	if (!err)
		return p;
	if (p->event >= 0)
		close(p->event);
	free(p);
	errno = err;
	return NULL;
}

void poller_stop(struct poller *p)
{
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	/* No join: the thread may be waiting for an answer, and the process ends. */
	pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
}

int poller_fd(const struct poller *p)
{
	return p->event;
}

void poller_want(struct poller *p, u32 files, u32 client, double interval,
		 bool paused)
{
	pthread_mutex_lock(&p->lock);
	/* Other files, and the end of a pause, take a sample at once. */
	if (files != p->files || client != p->client ||
	    (!paused && (p->paused || interval != p->interval)))
		p->kick = true;
	p->files = files;
	p->client = client;
	p->interval = interval;
	p->paused = paused;
	/* Wake a thread that sleeps until its next sample: it must see a pause. */
	pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
}

void poller_turn(struct poller *p, const char *path)
{
	pthread_mutex_lock(&p->lock);
	snprintf(p->path, sizeof(p->path), "%s", path);
	sample_free(p->fresh);
	p->fresh = NULL;
	p->kick = true;
	pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
}

struct sample *poller_take(struct poller *p)
{
	struct sample *s;
	eventfd_t v;

	(void)!eventfd_read(p->event, &v);
	pthread_mutex_lock(&p->lock);
	s = p->fresh;
	p->fresh = NULL;
	pthread_mutex_unlock(&p->lock);
	return s;
}

int poller_send(struct poller *p, const char *req)
{
	int err = 0;

	pthread_mutex_lock(&p->lock);
	if (p->busy)
		err = -EBUSY;
	else if (strlen(req) >= sizeof(p->req))
		err = -ENAMETOOLONG;
	if (!err) {
		strcpy(p->req, req);
		strcpy(p->req_path, p->path);
		p->busy = true;
		pthread_cond_signal(&p->wake);
	}
	pthread_mutex_unlock(&p->lock);
	return err;
}

bool poller_answer(struct poller *p, bool *refused, char *text, size_t len)
{
	bool done;

	pthread_mutex_lock(&p->lock);
	done = p->done;
	if (done) {
		*refused = p->refused;
		snprintf(text, len, "%s", p->answer);
		p->done = p->busy = false;
	}
	pthread_mutex_unlock(&p->lock);
	return done;
}
