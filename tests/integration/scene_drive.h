/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scene_drive.h - run a scene of swap_scenes.h under a real kvmm-hold
 */
#ifndef TESTS_SCENE_DRIVE_H
#define TESTS_SCENE_DRIVE_H

#include <sys/types.h>

#include <kvmm/types.h>

extern char scene_dir[128];	/* of the current test */

/* Call it before the first test; scene_sweep(): after the last one. */
void scene_drive_init(void);
void scene_sweep(void);

/* Fixture of a test: its directory, with hold, swapd and the fake kvmm. */
void scene_setup(void);
void scene_teardown(void);

/* Start hold with a scene; scene_wait() returns the exit code of hold. */
pid_t scene_spawn(const char *scene, u32 engine, u32 n);
int scene_wait(pid_t pid);
/* Both; hold must exit with 0, and no sanitizer may have reported a fault. */
void scene_run(const char *scene, u32 engine, u32 n);

/* The end of the log, to be freed; whether the log contains @text. */
char *scene_log(void);
bool scene_logged(const char *text);

bool have_uring(void);
/* Engine by the index of a loop test; threads on a machine without io_uring. */
u32 scene_engine(int i);

#endif /* TESTS_SCENE_DRIVE_H */
