/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rundir.h - the default directory of the sockets
 *
 *	$KVMM_RUNDIR, else $XDG_RUNTIME_DIR/kvmm, else /run/kvmm for root and
 *	/tmp/kvmm-UID for other users
 */
#ifndef KVMM_RUNDIR_H
#define KVMM_RUNDIR_H

#include <kvmm/types.h>

#define KV_ATTACH_SOCKET	"attach.sock"
#define KV_VIEW_SOCKET		"view.sock"
#define KV_ADMIN_SOCKET		"admin.sock"

/* kv_rundir() - the directory: 0, or -ENAMETOOLONG past @len bytes */
int __must_check kv_rundir(char *buf, size_t len);

/**
 * kv_rundir_make() - make the directory if it is missing, and check it
 * @dir: of kv_rundir()
 *
 * Any user can guess the name of a directory in /tmp, and could have made it.  So
 * it must belong to this user and be closed to others.
 *
 * Return: 0; -EPERM: it is not ours; another negative errno.
 */
int __must_check kv_rundir_make(const char *dir);

/**
 * kv_rundir_trust() - may a client use the sockets in the directory?
 * @dir: of kv_rundir()
 *
 * The server of these sockets gets prompts and the descriptors of swap areas.
 *
 * Return: 0, also if it does not exist yet; -EPERM: the one in /tmp is not ours.
 */
int __must_check kv_rundir_trust(const char *dir);

#endif /* KVMM_RUNDIR_H */
