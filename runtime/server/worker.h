/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker.h - between a backend's thread and the work it does
 */
#ifndef RUNTIME_SERVER_WORKER_H
#define RUNTIME_SERVER_WORKER_H

#include "runtime/server/backend.h"

/* backend_take() - the thread of @b looks at @w */
void backend_take(struct backend *b, struct work *w);

/**
 * work_run() - begin a work, or end what is unwanted of it
 * @e:   NULL while there is none: then it is refused with @why
 */
void work_run(struct work *w, struct engine *e, const char *why);

/*
 * backend_post() - post to an owner, on the backend's thread
 *
 * The tokens of a step go to many at once: who receives them is woken when all
 * are there, by the thread when it has ended the step.
 */
void backend_post(struct backend *b, struct mailbox *to, struct mail *m);

#endif /* RUNTIME_SERVER_WORKER_H */
