/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults_load.h - two runtimes in a small pool, on a disk that fails
 */
#ifndef TESTS_FAULTS_LOAD_H
#define TESTS_FAULTS_LOAD_H

#include "tests/integration/load.h"

/* Lines of the daemon about an area that fails. */
#define FAULTS_GOES	"gets nothing new, and goes"
#define FAULTS_CUT_OFF	"goes on failing"

/**
 * struct faults_seen - results of a campaign
 * @dead:    set by the test: there is no use in adding the area again
 * @texts:   pairs of texts that equalled the truth
 * @answer_ms: longest time that kvctl waited for the daemon, walkers included
 * @gone:    areas that the daemon removed
 * @cut_off: those of them that the daemon did not even read any more
 */
struct faults_seen {
	bool	dead;
	u32	texts;
	u32	answer_ms;
	u32	gone;
	u32	cut_off;
	s64	out;
	s64	in;
	s64	read_errors;
	s64	write_errors;
	s64	lost;
	s64	late;
};

extern struct rig faults_rig;

/* Called once for all tests: unchecked fixture. */
void faults_find_truth(void);
void faults_forget_truth(void);

/* Start small pools and an area; @path: its file, NULL: one in the run directory. */
void faults_start(const char *path, const char *engine);
/* The same.  Return: false, without a daemon, if the area is refused. */
bool faults_try_start(const char *path, const char *engine);
void faults_area_on(void);
void faults_area_off(void);
/* Return: exit code of kvctl swapon. */
int faults_area_try(void);

/*
 * One round of both runtimes.  A missing area is added again.  @meanwhile is
 * called over and over with the milliseconds since the start.
 */
void faults_load(struct faults_seen *seen, void (*meanwhile)(u32 ms));

/* Wait until no request is in flight; check that every host slot is accounted for. */
void faults_settle(void);
/* Remove the area, which must leave no slot behind; stop the daemon. */
void faults_end(struct faults_seen *seen);
/* Wait until the daemon removes the area; go on with one on a sound disk. */
void faults_end_of_disk(struct faults_seen *seen);

/* How often the log of the daemon contains these words. */
u32 faults_logged(const char *what);

#endif /* TESTS_FAULTS_LOAD_H */
