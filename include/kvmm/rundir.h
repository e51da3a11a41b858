/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rundir.h - where the sockets lie when nobody says otherwise
 *
 *	$KVMM_RUNDIR, else $XDG_RUNTIME_DIR/kvmm, else /run/kvmm for root and
 *	/tmp/kvmm-UID for everybody else
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
 * kv_rundir_make() - make the directory if it is not there, and judge it
 * @dir: of kv_rundir()
 *
 * The one in /tmp, whose name anybody can guess, must be ours and closed to
 * others, or somebody else could have put it there.
 *
 * Return: 0; -EPERM: it is not ours; another negative errno.
 */
int __must_check kv_rundir_make(const char *dir);

/**
 * kv_rundir_trust() - may a client use what lies there?
 * @dir: of kv_rundir()
 *
 * Who answers there gets prompts and the descriptors of swap areas.
 *
 * Return: 0, also where nothing is yet; -EPERM: the one in /tmp is not ours.
 */
int __must_check kv_rundir_trust(const char *dir);

#endif /* KVMM_RUNDIR_H */
