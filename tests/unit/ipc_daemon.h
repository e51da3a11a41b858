/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc_daemon.h - a real kvmm in a temporary directory, and lying clients
 *
 * The programs come from the same build.  A raw client writes the rings itself,
 * so it can do things that libkvmm never does.
 */
#ifndef TESTS_UNIT_IPC_DAEMON_H
#define TESTS_UNIT_IPC_DAEMON_H

#include <kvmm/ring.h>
#include <kvmm/types.h>
#include <uapi/kvmm.h>

/**
 * struct ipcd - a daemon under test
 * @dir:  its run directory, removed at the end
 * @pid:  of kvmm, or of kvmm-hold
 */
struct ipcd {
	char	dir[80];
	char	attach[108];
	char	view[108];
	pid_t	pid;
};

/* Make the directory, without a daemon. */
void ipcd_dir(struct ipcd *d);

/**
 * ipcd_spawn() - start a program in the directory, without waiting
 * @prog: "kvmm" or "kvmm-hold"
 * @args: options besides --socket, separated by blanks
 * @env:  "NAME=VALUE" or NULL
 *
 * stderr goes to @dir/log.
 */
void ipcd_spawn(struct ipcd *d, const char *prog, const char *args,
		const char *env);

/* ipcd_dir(), ipcd_spawn(), and wait until the daemon serves. */
void ipcd_start(struct ipcd *d, const char *prog, const char *args,
		const char *env);

/* Wait until the attach socket accepts a connection; true if it does. */
bool ipcd_ready(const struct ipcd *d, int ms);

/* Wait for the end.  Return: exit code, or 1000 + signal, or -1: still running. */
int ipcd_wait(struct ipcd *d, int ms);

/* Send SIGTERM: it must exit with 0 and leave no file.  Removes the directory. */
void ipcd_stop(struct ipcd *d);

/* End of a test: kill the daemon and remove the directory. */
void ipcd_discard(struct ipcd *d);

/* Does the log have this text? */
bool ipcd_logged(const struct ipcd *d, const char *text);

/* The walkers find no fault. */
void ipcd_check(const struct ipcd *d);

/* First number after @key in a file of the daemon; -1: no such line. */
long long ipcd_number(const struct ipcd *d, const char *file, const char *key);

/* Poll until the number is @want: false after @ms. */
bool ipcd_number_becomes(const struct ipcd *d, const char *file,
			 const char *key, long long want, int ms);

/* Number of open descriptors of a process. */
int ipcd_nr_fds(pid_t pid);

/* Child of @pid, or 0. */
pid_t ipcd_child(pid_t pid);

/**
 * struct rawc - a client by hand
 */
struct rawc {
	int			sock;
	int			fd[3];		/* C, D, doorbell */
	struct kvmm_attach_rep	rep;
	struct kvmm_client_ctl	*ctl;
	const struct kvmm_daemon_ctl *dctl;
	char			*c;
	const char		*d;
	u64			number;
};

/* A valid request. */
void rawc_request(struct kvmm_attach_req *req);

/* Connect.  Return: a socket, or -1 with errno. */
int rawc_connect(const struct ipcd *d);

/* Send the request and take the answer.  Return: its status, or -errno. */
int rawc_attach(struct rawc *r, const struct ipcd *d,
		const struct kvmm_attach_req *req);

/* rawc_request() and rawc_attach(), which must succeed. */
void rawc_open(struct rawc *r, const struct ipcd *d);
void rawc_close(struct rawc *r);

/* Entry number @i of the submission ring. */
struct kvmm_sqe *rawc_sqe(struct rawc *r, u32 i);
const struct kvmm_cqe *rawc_cqe(const struct rawc *r, u32 i);

/* Put one request into the ring, not yet published. */
struct kvmm_sqe *rawc_put(struct rawc *r, u16 op, u32 nr, const void *args,
			  u32 bytes);

/* Publish all prepared requests, and ring the doorbell. */
void rawc_publish(struct rawc *r);

/* Wait until there were @nr completions in all; false after 2 s. */
bool rawc_wait(const struct rawc *r, u32 nr);

/* Wait until the daemon sets @state; false after 5 s. */
bool rawc_state(const struct rawc *r, u32 state);

/* Read the socket to its end; false if that takes longer than @ms. */
bool rawc_hung_up(const struct rawc *r, int ms);

/* Take one map message; its descriptors are closed.  Return: extents, 0 at
 * the end of file, -EAGAIN after @ms.
 */
int rawc_take_map(struct rawc *r, struct kvmm_map_msg *msg, int ms);

/* Acknowledge extents. */
void rawc_ack(struct rawc *r, const struct kvmm_map_msg *msg);

/* Milliseconds, scaled for slow builds. */
int ipcd_ms(int ms);

#endif /* TESTS_UNIT_IPC_DAEMON_H */
