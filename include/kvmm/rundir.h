/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rundir.h - the default directory of the sockets
 *
 *	$KVMM_RUNDIR, else $XDG_RUNTIME_DIR/kvmm, else /run/kvmm for root and
 *	/tmp/kvmm-UID for other users; for programs that ask a daemon also
 *	/run/kvmm, if none is in the latter
 */
#ifndef KVMM_RUNDIR_H
#define KVMM_RUNDIR_H

#include <kvmm/types.h>

#define KV_ATTACH_SOCKET	"attach.sock"
#define KV_VIEW_SOCKET		"view.sock"
#define KV_ADMIN_SOCKET		"admin.sock"

#define KV_RUNDIR_SYSTEM	"/run/kvmm"	/* of the machine's daemon */
#define KV_RUNDIR_MAX		108	/* sun_path, with its NUL */

/* kv_rundir() - the directory: 0, or -ENAMETOOLONG past @len bytes */
int __must_check kv_rundir(char *buf, size_t len);

/* kv_rundir_is_system() - is it /run/kvmm, or /run/kvmm-N of GPU N, for all users? */
bool kv_rundir_is_system(const char *dir);

/**
 * kv_rundir_find() - the directory of the daemon that a program asks
 * @system: KV_RUNDIR_SYSTEM
 * @name:   the socket that the program wants, KV_*_SOCKET
 *
 * That of kv_rundir(), or @system if KVMM_RUNDIR is not set, no such socket is in
 * the former and one is in @system: a user without a daemon of its own asks the
 * machine's.
 *
 * Return: 0 or -ENAMETOOLONG.
 */
int __must_check kv_rundir_find(const char *system, const char *name, char *buf,
				size_t len);

/**
 * kv_rundir_socket() - the path of a socket of a daemon, for a program that asks it
 * @where: the run directory, or any socket in it; NULL: kv_rundir_find()
 * @name:  the socket that is wanted, KV_*_SOCKET
 * @path:  @len bytes
 *
 * A file of another name is the socket itself.
 *
 * Return: 0; -ENAMETOOLONG; -EPERM: see kv_rundir_trust().
 */
int __must_check kv_rundir_socket(const char *where, const char *name, char *path,
				  size_t len);

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
