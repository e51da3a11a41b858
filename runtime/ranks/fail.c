// SPDX-License-Identifier: Apache-2.0
/*
 * fail.c - the failure of a group, and its end
 *
 * The first failure is written into the window, once.  Every rank takes it from there, so
 * all ranks have one line and one error.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <kvmm/ring.h>

#include "runtime/ranks/internal.h"

#define ABORT_MS	300u	/* for MPI's answer; then the process ends without it */

static void say_time(char *text, size_t len, u32 ms)
{
	if (ms < 1000)
		snprintf(text, len, "%u ms", ms);
	else if (ms % 1000)
		snprintf(text, len, "%u.%u s", ms / 1000, ms % 1000 / 100);
	else
		snprintf(text, len, "%u s", ms / 1000);
}

static int take(struct ranks *r, u32 rank, u32 reason, const char *text)
{
	const u32 pid = r->w->slot[rank].pid;
	char time[24], who[48];

	if (pid)
		snprintf(who, sizeof(who), "rank %u (pid %u)", rank, pid);
	else
		snprintf(who, sizeof(who), "rank %u", rank);
	say_time(time, sizeof(time), r->timeout_ms);
	if (reason == RANKS_R_LATE)
		snprintf(r->failure, sizeof(r->failure), "%s did not answer in %s", who, time);
	else if (reason == RANKS_R_ABORT)
		snprintf(r->failure, sizeof(r->failure), "%s gave up: %s", who, text);
	else
		snprintf(r->failure, sizeof(r->failure), "%s has %s", who,
			 reason == RANKS_R_CLOSED ? "left the group" : "ended");
	r->error = reason == RANKS_R_LATE ? -ETIMEDOUT : -EPIPE;
	return r->error;
}

/* Ranks that sleep look at the failure now, not after their slice. */
static void wake_all(struct ranks *r)
{
	u32 i, j;

	for (i = 0; i < r->nr; i++)
		for (j = 0; j < RANKS_W_NR; j++)
			if (READ_ONCE(r->w->slot[i].word[j].sleepers))
				ring_futex_wake(&r->w->slot[i].word[j].count);
}

int ranks_failed(struct ranks *r)
{
	const struct ranks_failed *f = &r->w->failed;

	if (r->error)
		return r->error;
	if (!load_acquire(&f->set))
		return 0;
	return take(r, min(f->rank, r->nr - 1), f->reason, f->text);
}

int ranks_fail(struct ranks *r, u32 rank, enum ranks_reason reason, const char *text)
{
	struct ranks_failed *f = &r->w->failed;
	u32 none = 0;
	int ret;

	if (__atomic_compare_exchange_n(&f->claimed, &none, 1, false, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE)) {
		f->rank = rank;
		f->reason = reason;
		snprintf(f->text, sizeof(f->text), "%s", text ? text : "");
		store_release(&f->set, 1);
		wake_all(r);
	}
	ret = ranks_failed(r);
	/* Another rank fills the record in this moment, or ended while it did. */
	return ret ? ret : take(r, rank, reason, text ? text : "");
}

const char *ranks_failure(const struct ranks *r)
{
	return r->error ? r->failure : NULL;
}

void ranks_abort(struct ranks *r, const char *why)
{
	const struct itimerval bound = { .it_value.tv_usec = ABORT_MS * 1000 };
	sigset_t set;

	(void)ranks_fail(r, r->self, RANKS_R_ABORT, why ? why : "no reason given");
	if (!r->mpi)
		return;
	if (!__atomic_exchange_n(&r->w->failed.told, 1, __ATOMIC_ACQ_REL))
		dprintf(STDERR_FILENO, "kvrt: error: %s\n", r->failure);
	(void)ranks_exit_code(EXIT_FAILURE);
	/* mpiexec does not answer while it is stopped, or while it ends the group itself. */
	signal(SIGALRM, SIG_DFL);
	sigemptyset(&set);
	sigaddset(&set, SIGALRM);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	setitimer(ITIMER_REAL, &bound, NULL);
	r->mpi->abort(EXIT_FAILURE);
	_exit(EXIT_FAILURE);
}

void ranks_kill(struct ranks *r)
{
	__atomic_store_n(&r->w->failed.told, 1, __ATOMIC_RELEASE);
	ranks_abort(r, "it has said why");
}

static void leave_home(struct ranks_window *w, struct ranks_home *home)
{
	if (__atomic_sub_fetch(&home->refs, 1, __ATOMIC_ACQ_REL))
		return;
	munmap(w, home->bytes);
	free(home);
}

void ranks_close(struct ranks *r)
{
	struct ranks_window *w;
	struct ranks_home *home;
	const struct kvrt_mpi *mpi;
	int ret;

	if (!r)
		return;
	w = r->w;
	home = r->home;
	mpi = r->mpi;
	ranks_raise(r, RANKS_W_CLOSED, 1);
	ret = ranks_failed(r);
	if (!ret)
		ret = ranks_await_all(r, RANKS_W_CLOSED, 1);
	/* A rank may have closed after a failure: then it leaves MPI as it is, and so do all. */
	if (!ret)
		ret = ranks_failed(r);
	ranks_view_free(r);
	if (home)
		leave_home(w, home);
	else if (mpi && !ret)
		mpi->finish();
}
