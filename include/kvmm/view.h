/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.h - requests for the text of a daemon's files
 *
 * The view socket is a Unix stream socket beside the attach socket.  One
 * connection carries one request, a line, and its answer: `ok BYTES` and the
 * bytes, or `error ERRNO TEXT`.
 */
#ifndef KVMM_VIEW_H
#define KVMM_VIEW_H

#include <kvmm/seq.h>
#include <kvmm/types.h>

#define KV_VIEW_PATH_MAX	108	/* sun_path, with its NUL */
#define KV_VIEW_TEXT_MAX	((size_t)256 << 20)	/* bytes of an answer */

/**
 * kv_view_path() - the path of a daemon's view socket
 * @where: as for kv_rundir_socket()
 * @path:  KV_VIEW_PATH_MAX bytes
 *
 * Return: 0; -ENAMETOOLONG; -EPERM: see kv_rundir_trust().
 */
int __must_check kv_view_path(const char *where, char *path);

/**
 * kv_view_ask() - one request, one answer
 * @path:       of the socket
 * @req:        the request, without newline
 * @timeout_ms: longest silence of the daemon; 0 for none
 * @status:     takes 0, or the errno (positive) that the daemon answered
 * @text:       of seq_init(); takes the bytes, or after an error its text
 *
 * Return: 0 when a whole answer came; -errno of connecting: -ENOENT and
 * -ECONNREFUSED mean that no daemon is there; -ECONNABORTED when the answer
 * was cut, -EPROTO when it was malformed, -ETIMEDOUT.
 */
int __must_check kv_view_ask(const char *path, const char *req,
			     u32 timeout_ms, int *status,
			     struct seq_file *text);

/**
 * kv_view_wait() - a connection that is told when a pressure trigger fires
 * @req: `wait PATH some|full THRESHOLD WINDOW`
 * @fd:  takes the connection; close it to stop waiting
 *
 * Other arguments and Return: as of kv_view_ask().
 */
int __must_check kv_view_wait(const char *path, const char *req,
			      u32 timeout_ms, int *status,
			      struct seq_file *text, int *fd);

/**
 * kv_view_fired() - how often the trigger fired since the last call
 * @fd: of kv_view_wait()
 *
 * Does not wait.
 * Return: the number; -ECONNABORTED: the daemon, or the domain, is gone.
 */
int __must_check kv_view_fired(int fd);

#endif /* KVMM_VIEW_H */
