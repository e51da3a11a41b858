// SPDX-License-Identifier: Apache-2.0
/*
 * ask.c - requests of kvmm-proc to the daemon
 *
 * Each request has its own connection, as kvctl's have.  The socket of a stopped
 * daemon accepts connections and does not answer; so does a socket that kvmm-hold
 * keeps until the next daemon serves it.  A request ends after ASK_MS without an
 * answer.  Then the daemon counts as away until it answers a request.  Meanwhile
 * one caller at a time tries again, every AWAY_MS, and the others fail at once.
 * So a hundred readers of a dead daemon wait no longer than one, and a reader
 * that walks a path does not wait for each name.
 */
#include <pthread.h>
#include <stdio.h>

#include <kvmm/clock.h>
#include <kvmm/log.h>
#include <kvmm/view.h>

#include "kvmm/procfs/procfs.h"

#define ASK_MS	2000	/* longest wait for an answer */
#define AWAY_MS	200	/* time between two tries */
#define SLOW_MS	20	/* a longer request waits for its user's budget: ipc/view/spend.c */
#define SLOW_USER (PF_THREADS / 2)	/* threads that wait for one user */

static pthread_mutex_t prober = PTHREAD_MUTEX_INITIALIZER;
static u64 away_since;	/* in ms; 0: the daemon answers */

/* Requests that the daemon has not answered; @since in ms, 0: a free record. */
static pthread_mutex_t asking_lock = PTHREAD_MUTEX_INITIALIZER;
static struct asking {
	u64	since;
	uid_t	uid;
} asking[PF_THREADS];

/*
 * Note a request of the user, in *@a; root and the owner have no bound.  A user holds a
 * thread for each request, and may not hold all of them, nor more than half for long.
 * Return: 0 or -EBUSY.
 */
static int asking_begin(const struct procfs *pf, uid_t uid, struct asking **a)
{
	const u64 now = kv_now_ms();
	u32 i, nr = 0, slow = 0;

	*a = NULL;
	if (!uid || uid == pf->owner)
		return 0;
	pthread_mutex_lock(&asking_lock);
	for (i = 0; i < ARRAY_SIZE(asking); i++) {
		if (!asking[i].since) {
			*a = &asking[i];
		} else if (asking[i].uid == uid) {
			nr++;
			slow += now - asking[i].since > SLOW_MS;
		}
	}
	if (slow >= SLOW_USER || nr >= PF_THREADS - 1)
		*a = NULL;
	if (*a)
		**a = (struct asking){ .since = now, .uid = uid };
	pthread_mutex_unlock(&asking_lock);
	return *a ? 0 : -EBUSY;
}

static void asking_end(struct asking *a)
{
	if (!a)
		return;
	pthread_mutex_lock(&asking_lock);
	a->since = 0;
	pthread_mutex_unlock(&asking_lock);
}

/* A request with a character that cannot be printed names no file. */
static bool is_request(const char *req)
{
	for (; *req; req++)
		if (*req < ' ' || *req > '~')
			return false;
	return true;
}

static int ask(struct procfs *pf, const char *req, struct seq_file *text,
	       int *fd)
{
	int status, err;

	err = fd ? kv_view_wait(pf->view, req, ASK_MS, &status, text, fd) :
		   kv_view_ask(pf->view, req, ASK_MS, &status, text);
	if (!err)
		return -status;
	pr_debug("%s: %s", req, strerror(-err));
		/* These errors pass when a daemon runs again. */
	if (err == -ETIMEDOUT || err == -ECONNABORTED || err == -ECONNREFUSED ||
	    err == -ENOENT)
		return -EAGAIN;
	return err == -ENOMEM || err == -EMFILE ? err : -EIO;
}

int pf_ask_fd(struct procfs *pf, struct pf_user user, const char *req,
	      struct seq_file *text, int *fd)
{
	char full[PF_PATH + 64];
	const u64 since = READ_ONCE(away_since);
	struct asking *a;
	bool probes = false;
	int n, err;

	n = snprintf(full, sizeof(full), "as %u:%d %s", (unsigned int)user.uid,
		     (int)user.pid, req);
	if (n < 0 || n >= PF_PATH || !is_request(req))
		return -ENOENT;
	if (since) {
		if (kv_now_ms() - since < AWAY_MS ||
		    pthread_mutex_trylock(&prober))
			return -EAGAIN;
		probes = true;
	}
	err = asking_begin(pf, user.uid, &a);
	if (err) {
		if (probes)
			pthread_mutex_unlock(&prober);
		return err;
	}
	err = ask(pf, full, text, fd);
	asking_end(a);
	WRITE_ONCE(away_since, err == -EAGAIN ? kv_now_ms() : 0);
	if (probes)
		pthread_mutex_unlock(&prober);
	return err;
}

int pf_ask(struct procfs *pf, struct pf_user user, const char *req,
	   struct seq_file *text)
{
	return pf_ask_fd(pf, user, req, text, NULL);
}
