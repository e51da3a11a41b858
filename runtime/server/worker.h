/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker.h - interface between a backend's thread and the work it does
 */
#ifndef RUNTIME_SERVER_WORKER_H
#define RUNTIME_SERVER_WORKER_H

#include "runtime/server/backend.h"

/* backend_take() - have the thread of @b look at @w */
void backend_take(struct backend *b, struct work *w);

/**
 * work_run() - begin a work, or end the parts of it that are unwanted
 * @e:   NULL: there is no engine, so the work is refused with @why
 */
void work_run(struct work *w, struct engine *e, const char *why);

/*
 * backend_post() - post to an owner, on the backend's thread
 *
 * The tokens of a step go to many owners at once.  The thread wakes them when
 * it has ended the step, so that all tokens are there.
 */
void backend_post(struct backend *b, struct mailbox *to, struct mail *m);

#endif /* RUNTIME_SERVER_WORKER_H */
