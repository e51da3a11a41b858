/* SPDX-License-Identifier: Apache-2.0 */
/*
 * harness.h - real processes for the integration tests
 *
 * A rig is one daemon (kvmm-hold and its children) with its own run directory.
 * Jobs are other processes, each with its output in files there.  Every process
 * that a test starts is its child and dies with it.
 */
#ifndef TESTS_HARNESS_H
#define TESTS_HARNESS_H

#include <check.h>
#include <signal.h>
#include <sys/types.h>

#include <kvmm/types.h>

#define RIG_PATH	256
#define RIG_ARGS	48

struct rig {
	char	dir[RIG_PATH];		/* KVMM_RUNDIR */
	pid_t	hold;
	u32	nr_jobs;
};

struct job {
	pid_t	pid;
	char	out[RIG_PATH + 32];	/* stdout */
	char	err[RIG_PATH + 32];	/* stderr */
};

/* Paths of the build under test. */
const char *build_path(const char *program);
const char *demo_model(void);

/* One of three numbers, for the level: check, full or soak. */
u32 by_level(u32 check, u32 full, u32 soak);
/* Factor for all time limits: larger in instrumented builds. */
u32 time_scale(void);

/* A number from a generator with a seed that is printed once. */
u32 random_below(u32 n);

/*
 * $KVMM_TEST_BACKEND is cuda: a rig's pool is on the GPU that $KVMM_LIBCUDA
 * shows, or on its stand-in, unless a test names its backend.
 */
bool rig_on_gpu(void);
/* Start kvmm-hold with more arguments, NULL-terminated; waits until it answers. */
void rig_start(struct rig *r, ...);
/* End it with SIGTERM; it must exit with 0 and leave no file behind. */
void rig_stop(struct rig *r);
/* The reason why no file system can be mounted here, or NULL. */
const char *mount_hindrance(void);
/* Run the walkers; a fault fails the test with the walker's text. */
void rig_walk(struct rig *r);
/* Value of a key in a keyed file: -1 when the key is missing. */
s64 rig_value(struct rig *r, const char *file, const char *key);
/* Value of a column of a pool in the file pools. */
u64 rig_pool_value(struct rig *r, const char *pool, const char *column);
/* Wait until a value is at least @want; fails after @seconds. */
void rig_await(struct rig *r, const char *file, const char *key, s64 want,
	       u32 seconds);
/* pid of the kvmm that hold started last, 0 if none. */
pid_t rig_daemon(struct rig *r);
/* pid of the swapd that hold started last, 0 if none. */
pid_t rig_swapd(struct rig *r);
/* pid of the kvmm-proc that hold started last, 0 if none. */
pid_t rig_proc(struct rig *r);

/* Start a program of the build with KVMM_RUNDIR set; NULL-terminated. */
struct job job_start(struct rig *r, const char *program, ...);
struct job job_startv(struct rig *r, const char *program, char *const argv[]);
/* Wait for its end.  Return: exit code or 128 + signal; fails after @seconds. */
int job_wait(struct job *j, u32 seconds);
/* Return: whether it has ended, with its exit code in @code. */
bool job_ended(struct job *j, int *code);
void job_kill(struct job *j, int sig);

/* Read a whole file as a string, to be freed. */
char *slurp(const char *path);
u32 count_lines(const char *text);
void nap_ms(u32 ms);
u64 now_ms(void);

/*
 * The demo model is in bf16; the pools of the tests are sized for KV in f32.  An
 * option that comes later replaces the type.
 */
#define KVRT_GENERATE	"kvrt", "generate", "--dtype", "f32"

/* Output of a --json run of kvrt generate, by prompt and sample. */
struct samples {
	u32	nr;
	struct sample {
		u32	prompt;
		u32	sample;
		u32	nr_ids;
		u32	cached;
		u32	*ids;
		char	reason[16];
	} *s;
};

void samples_read(struct samples *all, const char *path);
void samples_free(struct samples *all);
/* Both must have the same pairs (prompt, sample), with the same ids. */
void samples_equal(const struct samples *a, const struct samples *b);

#endif /* TESTS_HARNESS_H */
