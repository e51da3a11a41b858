/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adopt_scene.h - a kvmm that dies and is adopted, for it_adopt*.c
 */
#ifndef TESTS_ADOPT_SCENE_H
#define TESTS_ADOPT_SCENE_H

#include "tests/integration/harness.h"

#define ADOPT_WAIT_MS	30000u

extern struct rig adopt_rig;

/* Memory of its pool, and one extent less. */
const char *adopt_pool_size(bool less);
/* A small node with a host pool and a swap area; more options, NULL last. */
void adopt_world(const char *adopt, const char *resume_ms, ...);
void adopt_world_stop(void);

/* What the programs of the node said. */
char *adopt_log(void);
/* The end of it, for a failure's text. */
const char *adopt_log_end(void);
/* How often they said it. */
u32 adopt_logged(const char *what);
/* Wait until they have said it more than @before times. */
void adopt_await_logged(const char *what, u32 before);
/* The sum of the numbers before @what in lines that hold @line. */
u32 adopt_sum(const char *line, const char *what);

/* pid of kvmm, which is another than @other. */
pid_t adopt_daemon(pid_t other);
/* Kill it, and wait until the next one serves. */
void adopt_kill(void);
/* Wait until hold asks another program whether it is a kvmm. */
void adopt_await_probe(void);
/* Kill it, and do something before hold starts the next one. */
void adopt_kill_and(void (*fn)(void *arg), void *arg);
/* A descriptor of the memfd of that name, which hold keeps. */
int adopt_kept(const char *name);

#endif /* TESTS_ADOPT_SCENE_H */
