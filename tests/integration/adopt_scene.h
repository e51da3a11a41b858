/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adopt_scene.h - a kvmm that dies and is adopted, for it_adopt*.c
 */
#ifndef TESTS_ADOPT_SCENE_H
#define TESTS_ADOPT_SCENE_H

#include <sys/types.h>

#include "tests/integration/harness.h"

#define ADOPT_WAIT_MS	30000u

extern struct rig adopt_rig;

/* Size of the daemon's device pool, or one extent less. */
const char *adopt_pool_size(bool less);
/* A small node with a host pool and a swap area; more options, NULL last. */
void adopt_world(const char *adopt, const char *resume_ms, ...);
void adopt_world_stop(void);

/* Text that the programs of the node wrote; to be freed. */
char *adopt_log(void);
/* The end of that text, for the text of a failure. */
const char *adopt_log_end(void);
/* How often that text contains the words. */
u32 adopt_logged(const char *what);
/* Wait until it contains them more than @before times. */
void adopt_await_logged(const char *what, u32 before);
/* The sum of the numbers before those words in lines that contain @line. */
u32 adopt_sum(const char *line, const char *what);

/* pid of the running kvmm, once it differs from @other. */
pid_t adopt_daemon(pid_t other);
/* Kill kvmm, and wait until the next one serves. */
void adopt_kill(void);
/* Wait until hold asks another program whether it is a kvmm. */
void adopt_await_probe(void);
/* Kill kvmm, and call @fn before hold starts the next one. */
void adopt_kill_and(void (*fn)(void *arg), void *arg);
/* A descriptor of the memfd of that name that hold keeps. */
int adopt_kept(const char *name);
/* The same, once hold keeps another file than the one of inode @old. */
int adopt_kept_after(const char *name, ino_t old);

#endif /* TESTS_ADOPT_SCENE_H */
