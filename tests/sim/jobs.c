// SPDX-License-Identifier: Apache-2.0
/*
 * jobs.c - the seeds of a run, shared out over processes
 *
 * Seeds are independent, so as many processes as there are cores take blocks of
 * seeds from one counter until none is left.  The counter and the totals are in
 * memory that all processes share.  A process leaves its other counts (cover.c)
 * in its own place there when it ends, and the first process adds them up.  The
 * report of a broken seed is written whole: its writer holds a lock, which goes
 * with the process.
 *
 * With one job nothing is forked.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/sim/jobs.h"

static struct sim_totals *totals;
static int lock_fd = -1;

/* The cores that this process may use. */
u32 jobs_default(void)
{
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return 1;
	return min((u32)CPU_COUNT(&set), JOBS_MAX);
}

/**
 * jobs_report_begin() - keep other processes from writing a report
 */
void jobs_report_begin(void)
{
	if (lock_fd >= 0 && lockf(lock_fd, F_LOCK, 0))
		perror("sim: error: cannot lock the output");
}

void jobs_report_end(void)
{
	fflush(stdout);
	if (lock_fd >= 0 && lockf(lock_fd, F_ULOCK, 0))
		perror("sim: error: cannot unlock the output");
}

static void *share(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p != MAP_FAILED)
		return p;
	fprintf(stderr, "sim: error: no memory for %zu bytes of totals: free some\n",
		bytes);
	exit(2);
}

/* Take blocks of seeds until none is left, or too many are broken. */
static void work(u64 nr, void (*run)(u64 from, u64 to))
{
	u64 from;

	while (__atomic_load_n(&totals->failures, __ATOMIC_RELAXED) <
	       JOBS_MAX_FAILURES) {
		from = __atomic_fetch_add(&totals->next, JOBS_BLOCK,
					  __ATOMIC_RELAXED);
		if (from >= nr)
			break;
		run(from, min(from + JOBS_BLOCK, nr));
	}
}

static void worker(u64 nr, void (*run)(u64 from, u64 to), pid_t parent,
		   void *cover)
{
	/* No worker stays behind when the first process is ended. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	work(nr, run);
	cover_save(cover);
	exit(0);
}

/* Wait for all workers; if one crashes, which names its seed, no more start. */
static void reap(u64 nr, u32 jobs)
{
	int status;

	while (jobs) {
		if (wait(&status) < 0)
			continue;
		jobs--;
		if (WIFEXITED(status) && !WEXITSTATUS(status))
			continue;
		__atomic_fetch_add(&totals->failures, 1, __ATOMIC_RELAXED);
		__atomic_store_n(&totals->next, nr, __ATOMIC_RELAXED);
	}
}

/**
 * jobs_run() - run @nr seeds in @jobs processes
 * @run: runs the seeds from @from to before @to; calls jobs_count() for each
 *
 * Return: the totals.
 */
const struct sim_totals *jobs_run(u64 nr, u32 jobs,
				  void (*run)(u64 from, u64 to))
{
	size_t each = ALIGN_UP(cover_bytes(), (size_t)64);
	pid_t pid = 0, self = getpid();
	u32 i, started = 0;
	u8 *covers;

	totals = share(sizeof(*totals));
	if (jobs <= 1) {
		work(nr, run);
		return totals;
	}
	covers = share(jobs * each);
	lock_fd = memfd_create("sim-output", MFD_CLOEXEC);
	fflush(stdout);
	for (i = 0; i < jobs; i++) {
		pid = fork();
		if (!pid)
			worker(nr, run, self, covers + i * each);
		if (pid < 0)
			break;
		started++;
	}
	if (!started)
		work(nr, run);
	reap(nr, started);
	for (i = 0; i < started; i++)
		cover_add(covers + i * each);
	munmap(covers, jobs * each);
	return totals;
}

/**
 * jobs_count() - a seed is over: add to the totals of all processes
 *
 * Return: the totals now.
 */
struct sim_totals jobs_count(u64 seeds, u64 events, u32 failures)
{
	struct sim_totals t = {
		.seeds = __atomic_add_fetch(&totals->seeds, seeds,
					    __ATOMIC_RELAXED),
		.events = __atomic_add_fetch(&totals->events, events,
					     __ATOMIC_RELAXED),
		.failures = __atomic_add_fetch(&totals->failures, failures,
					       __ATOMIC_RELAXED),
	};

	return t;
}
