/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin.h - answers on the admin socket
 */
#ifndef KVMM_IPC_ADMIN_H
#define KVMM_IPC_ADMIN_H

#include <kvmm/types.h>

struct admin;
struct daemon;

#define ADMIN_TEXT	4400	/* a path and some words */

/**
 * admin_finish() - the last word of an answer; the connection closes
 * @err:  0 or a negative errno
 * @text: one line
 *
 * @adm is not to be named any more.
 */
void admin_finish(struct daemon *d, struct admin *adm, int err,
		  const char *text);

/* admin_progress() - a word in between; lost if nobody reads */
void admin_progress(struct admin *adm, const char *text);

/* admin_set.c */
int __must_check admin_change(struct daemon *d, const char *req, char *text);

#endif /* KVMM_IPC_ADMIN_H */
