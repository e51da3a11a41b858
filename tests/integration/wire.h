/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire.h - a client that speaks the ABI by hand
 *
 * It does what libkvmm never would.  Nothing here asserts: a daemon that is
 * gone, or that expelled this client, is an answer like another.
 */
#ifndef TESTS_WIRE_H
#define TESTS_WIRE_H

#include <sys/types.h>

#include <kvmm/ring.h>
#include <kvmm/types.h>
#include <uapi/kvmm.h>

#define WIRE_EXTENTS	64

/**
 * struct wire - one attachment
 * @fd:     segment C, segment D, doorbell
 * @tail:   entries put into the ring
 * @taken:  completions taken
 * @number: of the last request
 * @step:   of the last step that was begun
 * @ext:    extents that came, with their descriptors
 */
struct wire {
	int				sock;
	int				fd[3];
	struct kvmm_attach_rep		rep;
	char				*c;
	const char			*d;
	struct kvmm_client_ctl		*ctl;
	const struct kvmm_daemon_ctl	*dctl;
	u32				tail;
	u32				taken;
	u64				number;
	u64				step;
	u32				nr_ext;
	struct {
		int			fd;
		u32			extent;
		u32			generation;
	}				ext[WIRE_EXTENTS];
};

/* A request that is granted, for a small model in @domain. */
void wire_request(struct kvmm_attach_req *req, const char *domain);
/* Connect a socket of @type to the path; -errno. */
int wire_connect(const char *path, int type);
/* Send bytes with @nr_fds descriptors, without waiting: 0 or -errno. */
int wire_send(int sock, const void *buf, size_t len, const int *fds,
	      u32 nr_fds);
/* Attach: 0, or what went wrong. */
int wire_attach(struct wire *w, const char *path,
		const struct kvmm_attach_req *req);
void wire_close(struct wire *w);
/* Does the daemon still serve it? */
bool wire_alive(const struct wire *w);

/* The entry after the last one, zeroed but for what is given. */
struct kvmm_sqe *wire_put(struct wire *w, u16 op, u32 nr, const void *args,
			  u32 bytes);
/* Show the daemon all entries, and wake it. */
void wire_publish(struct wire *w);
void wire_bell(const struct wire *w);
/* The next completion within @ms: its results or NULL; *@status is set. */
const void *wire_take(struct wire *w, u32 ms, int *status);
/* One request, one answer: its status; -ETIMEDOUT: none came. */
int wire_call(struct wire *w, u16 op, u32 nr, const void *args, u32 bytes,
	      void *res, u32 res_bytes);
/* Send DETACH and wait for the answer.  Return: its status, or -ETIMEDOUT. */
int wire_detach(struct wire *w);
/* Take what extents have come, and acknowledge them if @honest. */
void wire_extents(struct wire *w, bool honest);
/* Open a sequence of @tokens and get it READY; 0: it did not become so. */
u64 wire_seq(struct wire *w, u32 tokens, u32 salt);
/* Begin a step of the next token of @seq: 0 when it was granted. */
int wire_step(struct wire *w, u64 seq);

#endif /* TESTS_WIRE_H */
