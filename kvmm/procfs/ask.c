// SPDX-License-Identifier: Apache-2.0
/*
 * ask.c - kvmm-proc asks the daemon
 *
 * One connection a request, as kvctl does it.  A daemon that is stopped, or
 * whose place hold keeps until the next one serves, takes connections and says
 * nothing: such a request ends after ASK_MS.  Then the daemon counts as away
 * until one has answered: of all who ask meanwhile one waits, to find out, now
 * and then, and the others are told at once.  So a hundred readers of a dead
 * daemon wait no longer than one, and one that walks a path not for each name.
 */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include <kvmm/log.h>
#include <kvmm/view.h>

#include "kvmm/procfs/procfs.h"

#define ASK_MS	2000	/* longest silence */
#define AWAY_MS	200	/* that long nobody tries again */

static pthread_mutex_t prober = PTHREAD_MUTEX_INITIALIZER;
static u64 away_since;	/* in ms; 0: it answers */

static u64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000 + (u64)ts.tv_nsec / 1000000;
}

/* What cannot be printed names nothing. */
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
	/* All of these pass when there is a daemon again. */
	if (err == -ETIMEDOUT || err == -ECONNABORTED || err == -ECONNREFUSED ||
	    err == -ENOENT)
		return -EAGAIN;
	return err == -ENOMEM || err == -EMFILE ? err : -EIO;
}

int pf_ask_fd(struct procfs *pf, uid_t uid, const char *req,
	      struct seq_file *text, int *fd)
{
	char full[PF_PATH + 64];
	const u64 since = READ_ONCE(away_since);
	bool probes = false;
	int n, err;

	n = snprintf(full, sizeof(full), "as %u %s", (unsigned int)uid, req);
	if (n < 0 || n >= PF_PATH || !is_request(req))
		return -ENOENT;
	if (since) {
		if (now_ms() - since < AWAY_MS ||
		    pthread_mutex_trylock(&prober))
			return -EAGAIN;
		probes = true;
	}
	err = ask(pf, full, text, fd);
	WRITE_ONCE(away_since, err == -EAGAIN ? now_ms() : 0);
	if (probes)
		pthread_mutex_unlock(&prober);
	return err;
}

int pf_ask(struct procfs *pf, uid_t uid, const char *req,
	   struct seq_file *text)
{
	return pf_ask_fd(pf, uid, req, text, NULL);
}
